"""The commitlog as columns: the walk of `store/log`, with runs of messages as arrays.

for record in walk_columns(log, columns=Columns.DISPATCH):
    if isinstance(record, MessageColumns): ...   # else Blank, Empty or Damage
"""
