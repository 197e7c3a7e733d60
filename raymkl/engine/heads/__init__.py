"""One head, as the coordinator has it: where it is, what rounds have shown, what it decides; and heads that
share weights.
"""
