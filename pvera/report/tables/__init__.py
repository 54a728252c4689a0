"""Tables by topic: functions that compute frames, and `*_table` functions that show them."""
