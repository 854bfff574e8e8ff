"""Users' tables: read files, learn and encode columns, group rows into tasks, write columns."""
