"""The commitlog as columns: the same walk as `commitlog.walk`, with runs of messages as arrays.

for record in walk_columns(log, columns=Columns.DISPATCH):
    if isinstance(record, MessageColumns): ...   # else Blank, Empty or Damage
"""
