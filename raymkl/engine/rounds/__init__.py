"""The side of the coordinator: rounds, the heads that it solves for, the blocks and columns that it keeps."""
