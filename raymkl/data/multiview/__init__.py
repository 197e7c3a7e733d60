"""Named views over the same rows, of which any row may lack some: the container, its rows, and how tables are aligned to it.

| file | what it knows |
|---|---|
| container | `Views`: names, rows, presence |
| columns | one view, whatever it is held in: read-only, some rows of it, stacked, which rows hold nothing |
| matrix_rows | rows of a ready-made matrix that know their columns |
| presence | which rows have which views, from what a user says |
| align | tables joined by key |
"""
