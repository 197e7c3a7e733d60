"""Named views over the same rows, of which any row may lack some.

| file | what it knows |
|---|---|
| container | `Views`: names, rows, presence |
| columns | one view, whatever it is held in: read-only, some rows of it, stacked, which rows hold nothing |
| gappy_rows | rows of a view of which some are not there |
| matrix_rows | rows of a ready-made matrix that know their columns |
| presence | which rows have which views, from what a user says |
| align | tables joined by key |
"""
