"""Rows before any kernel: views of the input, strings as bytes, tables that stay where they are, kernel
stores, plain Arrow files.

Nothing here imports another room, and nothing but `ray_dataset` imports Ray.
"""
