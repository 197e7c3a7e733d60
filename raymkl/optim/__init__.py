"""Losses, norms, steps and certificates: functions of arrays, without kernels or processes."""
