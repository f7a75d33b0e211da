"""Fixed layouts. Generated from formats/schemas.py by `python -m tests.generated.layouts`: do not edit."""

from rmqctl.formats.layout import Layout

FRAME_HEAD_44 = Layout("FRAME_HEAD_44", (
    ("total_size", "i", 0, 4),
    ("magic_code", "I", 4, 4),
    ("body_crc", "i", 8, 4),
    ("queue_id", "i", 12, 4),
    ("flag", "i", 16, 4),
    ("queue_offset", "q", 20, 8),
    ("physical_offset", "q", 28, 8),
    ("sys_flag", "i", 36, 4),
    ("born_timestamp", "q", 40, 8),
    ("born_host_ip", "4s", 48, 4),
    ("born_host_port", "i", 52, 4),
    ("store_timestamp", "q", 56, 8),
    ("store_host_ip", "4s", 64, 4),
    ("store_host_port", "i", 68, 4),
    ("reconsume_times", "i", 72, 4),
    ("prepared_transaction_offset", "q", 76, 8),
    ("body_length", "i", 84, 4),
))
FRAME_HEAD_64 = Layout("FRAME_HEAD_64", (
    ("total_size", "i", 0, 4),
    ("magic_code", "I", 4, 4),
    ("body_crc", "i", 8, 4),
    ("queue_id", "i", 12, 4),
    ("flag", "i", 16, 4),
    ("queue_offset", "q", 20, 8),
    ("physical_offset", "q", 28, 8),
    ("sys_flag", "i", 36, 4),
    ("born_timestamp", "q", 40, 8),
    ("born_host_ip", "16s", 48, 16),
    ("born_host_port", "i", 64, 4),
    ("store_timestamp", "q", 68, 8),
    ("store_host_ip", "4s", 76, 4),
    ("store_host_port", "i", 80, 4),
    ("reconsume_times", "i", 84, 4),
    ("prepared_transaction_offset", "q", 88, 8),
    ("body_length", "i", 96, 4),
))
FRAME_HEAD_46 = Layout("FRAME_HEAD_46", (
    ("total_size", "i", 0, 4),
    ("magic_code", "I", 4, 4),
    ("body_crc", "i", 8, 4),
    ("queue_id", "i", 12, 4),
    ("flag", "i", 16, 4),
    ("queue_offset", "q", 20, 8),
    ("physical_offset", "q", 28, 8),
    ("sys_flag", "i", 36, 4),
    ("born_timestamp", "q", 40, 8),
    ("born_host_ip", "4s", 48, 4),
    ("born_host_port", "i", 52, 4),
    ("store_timestamp", "q", 56, 8),
    ("store_host_ip", "16s", 64, 16),
    ("store_host_port", "i", 80, 4),
    ("reconsume_times", "i", 84, 4),
    ("prepared_transaction_offset", "q", 88, 8),
    ("body_length", "i", 96, 4),
))
FRAME_HEAD_66 = Layout("FRAME_HEAD_66", (
    ("total_size", "i", 0, 4),
    ("magic_code", "I", 4, 4),
    ("body_crc", "i", 8, 4),
    ("queue_id", "i", 12, 4),
    ("flag", "i", 16, 4),
    ("queue_offset", "q", 20, 8),
    ("physical_offset", "q", 28, 8),
    ("sys_flag", "i", 36, 4),
    ("born_timestamp", "q", 40, 8),
    ("born_host_ip", "16s", 48, 16),
    ("born_host_port", "i", 64, 4),
    ("store_timestamp", "q", 68, 8),
    ("store_host_ip", "16s", 76, 16),
    ("store_host_port", "i", 92, 4),
    ("reconsume_times", "i", 96, 4),
    ("prepared_transaction_offset", "q", 100, 8),
    ("body_length", "i", 108, 4),
))
BLANK_FRAME = Layout("BLANK_FRAME", (
    ("total_size", "i", 0, 4),
    ("magic_code", "I", 4, 4),
))
HOST_V4 = Layout("HOST_V4", (
    ("ip", "4s", 0, 4),
    ("port", "i", 4, 4),
))
HOST_V6 = Layout("HOST_V6", (
    ("ip", "16s", 0, 16),
    ("port", "i", 16, 4),
))
PROPERTY_CRC = Layout("PROPERTY_CRC", (
    ("name", "8s", 0, 8),
    ("name_separator", "1s", 8, 1),
    ("digits", "10s", 9, 10),
    ("property_separator", "1s", 19, 1),
))
CONSUMEQUEUE_UNIT = Layout("CONSUMEQUEUE_UNIT", (
    ("physical_offset", "q", 0, 8),
    ("size", "i", 8, 4),
    ("tags_code", "q", 12, 8),
))
BATCH_CONSUMEQUEUE_UNIT = Layout("BATCH_CONSUMEQUEUE_UNIT", (
    ("physical_offset", "q", 0, 8),
    ("size", "i", 8, 4),
    ("tags_code", "q", 12, 8),
    ("store_timestamp", "q", 20, 8),
    ("base_queue_offset", "q", 28, 8),
    ("batch_size", "h", 36, 2),
    ("compacted_offset", "i", 38, 4),
    ("reserved", "i", 42, 4),
))
INDEX_HEADER = Layout("INDEX_HEADER", (
    ("begin_timestamp", "q", 0, 8),
    ("end_timestamp", "q", 8, 8),
    ("begin_physical_offset", "q", 16, 8),
    ("end_physical_offset", "q", 24, 8),
    ("hash_slot_count", "i", 32, 4),
    ("index_count", "i", 36, 4),
))
INDEX_SLOT = Layout("INDEX_SLOT", (
    ("entry", "i", 0, 4),
))
INDEX_ENTRY = Layout("INDEX_ENTRY", (
    ("key_hash", "i", 0, 4),
    ("physical_offset", "q", 4, 8),
    ("time_difference", "i", 12, 4),
    ("previous_entry", "i", 16, 4),
))
TIERED_INDEX_HEADER = Layout("TIERED_INDEX_HEADER", (
    ("magic_code", "I", 0, 4),
    ("begin_timestamp", "q", 4, 8),
    ("end_timestamp", "q", 12, 8),
    ("slot_count", "i", 20, 4),
    ("item_count", "i", 24, 4),
))
TIERED_INDEX_SLOT = Layout("TIERED_INDEX_SLOT", (
    ("position", "i", 0, 4),
    ("size", "i", 4, 4),
))
TIERED_INDEX_ITEM = Layout("TIERED_INDEX_ITEM", (
    ("key_hash", "i", 0, 4),
    ("topic_id", "i", 4, 4),
    ("queue_id", "i", 8, 4),
    ("segment_offset", "q", 12, 8),
    ("size", "i", 20, 4),
    ("time_difference", "i", 24, 4),
))
LOCAL_TIERED_INDEX_SLOT = Layout("LOCAL_TIERED_INDEX_SLOT", (
    ("item", "i", 0, 4),
    ("unused", "i", 4, 4),
))
LOCAL_TIERED_INDEX_ITEM = Layout("LOCAL_TIERED_INDEX_ITEM", (
    ("key_hash", "i", 0, 4),
    ("topic_id", "i", 4, 4),
    ("queue_id", "i", 8, 4),
    ("segment_offset", "q", 12, 8),
    ("size", "i", 20, 4),
    ("time_difference", "i", 24, 4),
    ("previous_item", "i", 28, 4),
))
TIMER_CHECKPOINT = Layout("TIMER_CHECKPOINT", (
    ("last_read_time_ms", "q", 0, 8),
    ("last_timer_log_flush_pos", "q", 8, 8),
    ("last_timer_queue_offset", "q", 16, 8),
    ("master_timer_queue_offset", "q", 24, 8),
    ("state_version", "q", 32, 8),
    ("timestamp", "q", 40, 8),
    ("counter", "q", 48, 8),
))
TIMER_WHEEL_SLOT = Layout("TIMER_WHEEL_SLOT", (
    ("time", "q", 0, 8),
    ("first_pos", "q", 8, 8),
    ("last_pos", "q", 16, 8),
    ("num", "i", 24, 4),
    ("magic", "i", 28, 4),
))
TIMER_LOG_UNIT = Layout("TIMER_LOG_UNIT", (
    ("size", "i", 0, 4),
    ("previous_pos", "q", 4, 8),
    ("magic", "i", 12, 4),
    ("write_time", "q", 16, 8),
    ("delay", "i", 24, 4),
    ("physical_offset", "q", 28, 8),
    ("message_size", "i", 36, 4),
    ("topic_hash", "i", 40, 4),
    ("reserved", "q", 44, 8),
))
DLEDGER_ENTRY_HEAD = Layout("DLEDGER_ENTRY_HEAD", (
    ("magic_code", "i", 0, 4),
    ("size", "i", 4, 4),
    ("entry_index", "q", 8, 8),
    ("term", "q", 16, 8),
    ("pos", "q", 24, 8),
    ("channel", "i", 32, 4),
    ("chain_crc", "i", 36, 4),
    ("body_crc", "i", 40, 4),
    ("body_size", "i", 44, 4),
))
DLEDGER_INDEX_UNIT = Layout("DLEDGER_INDEX_UNIT", (
    ("magic_code", "i", 0, 4),
    ("pos", "q", 4, 8),
    ("size", "i", 12, 4),
    ("entry_index", "q", 16, 8),
    ("term", "q", 24, 8),
))
ROCKSDB_RECORD = Layout("ROCKSDB_RECORD", (
    ("checksum", "I", 0, 4),
    ("size", "H", 4, 2),
    ("type", "B", 6, 1),
), "<")
ROCKSDB_BATCH = Layout("ROCKSDB_BATCH", (
    ("sequence", "Q", 0, 8),
    ("count", "I", 8, 4),
), "<")
ROCKSDB_BLOCK_TRAILER = Layout("ROCKSDB_BLOCK_TRAILER", (
    ("compression", "B", 0, 1),
    ("checksum", "I", 1, 4),
), "<")
ROCKSDB_FOOTER = Layout("ROCKSDB_FOOTER", (
    ("checksum_type", "B", 0, 1),
    ("handles", "40s", 1, 40),
    ("format_version", "I", 41, 4),
    ("magic", "Q", 45, 8),
), "<")
ROCKSDB_QUEUE_UNIT = Layout("ROCKSDB_QUEUE_UNIT", (
    ("physical_offset", "q", 0, 8),
    ("size", "i", 8, 4),
    ("tags_code", "q", 12, 8),
    ("store_timestamp", "q", 20, 8),
))
ROCKSDB_QUEUE_END = Layout("ROCKSDB_QUEUE_END", (
    ("physical_offset", "q", 0, 8),
    ("queue_offset", "q", 8, 8),
))
ROCKSDB_TIMER = Layout("ROCKSDB_TIMER", (
    ("size", "i", 0, 4),
    ("physical_offset", "q", 4, 8),
))
ROCKSDB_TRANSACTION = Layout("ROCKSDB_TRANSACTION", (
    ("checks", "i", 0, 4),
    ("size", "i", 4, 4),
))
OFFSET_MESSAGE_ID_V4 = Layout("OFFSET_MESSAGE_ID_V4", (
    ("ip", "4s", 0, 4),
    ("port", "i", 4, 4),
    ("physical_offset", "q", 8, 8),
))
OFFSET_MESSAGE_ID_V6 = Layout("OFFSET_MESSAGE_ID_V6", (
    ("ip", "16s", 0, 16),
    ("port", "i", 16, 4),
    ("physical_offset", "q", 20, 8),
))
UNIQUE_ID_V4 = Layout("UNIQUE_ID_V4", (
    ("ip", "4s", 0, 4),
    ("process_id", "H", 4, 2),
    ("class_loader_hash", "i", 6, 4),
    ("time_difference", "i", 10, 4),
    ("counter", "H", 14, 2),
))
UNIQUE_ID_V6 = Layout("UNIQUE_ID_V6", (
    ("ip", "16s", 0, 16),
    ("process_id", "H", 16, 2),
    ("class_loader_hash", "i", 18, 4),
    ("time_difference", "i", 22, 4),
    ("counter", "H", 26, 2),
))
BATCH_ITEM_HEAD = Layout("BATCH_ITEM_HEAD", (
    ("item_size", "i", 0, 4),
    ("magic_code", "i", 4, 4),
    ("body_crc", "i", 8, 4),
    ("flag", "i", 12, 4),
    ("body_length", "i", 16, 4),
))
CONSUMEQUEUE_EXT_UNIT_HEAD = Layout("CONSUMEQUEUE_EXT_UNIT_HEAD", (
    ("size", "h", 0, 2),
    ("tags_code", "q", 2, 8),
    ("store_timestamp", "q", 10, 8),
    ("bit_map_size", "h", 18, 2),
))
CHECKPOINT = Layout("CHECKPOINT", (
    ("physic_msg_timestamp", "q", 0, 8),
    ("logics_msg_timestamp", "q", 8, 8),
    ("index_msg_timestamp", "q", 16, 8),
    ("master_flushed_offset", "q", 24, 8),
    ("confirm_physical_offset", "q", 32, 8),
    ("logics_physical_offset", "q", 40, 8),
))
TOPIC_LENGTH_V1 = Layout("TOPIC_LENGTH_V1", (
    ("topic_length", "b", 0, 1),
))
TOPIC_LENGTH_V2 = Layout("TOPIC_LENGTH_V2", (
    ("topic_length", "h", 0, 2),
))
PROPERTIES_LENGTH = Layout("PROPERTIES_LENGTH", (
    ("properties_length", "h", 0, 2),
))
BATCH_ITEM_PROPERTIES_LENGTH = Layout("BATCH_ITEM_PROPERTIES_LENGTH", (
    ("properties_length", "h", 0, 2),
))
# by sys_flag: bit 0x10 (born host IPv6) + bit 0x20 (store host IPv6), shifted down by four
FRAME_HEADS = (FRAME_HEAD_44, FRAME_HEAD_64, FRAME_HEAD_46, FRAME_HEAD_66)
MESSAGE_MAGIC_V1 = 0xDAA320A7
MESSAGE_MAGIC_V2 = 0xDAA320AB
BLANK_MAGIC = 0xCBD43194
DLEDGER_MAGIC = 1
TIERED_INDEX_MAGIC = 0xBCC50285
TIERED_INDEX_OPEN = 0xBCC50289
CHECKPOINT_SIZE = 4096
TIMER_CHECKPOINT_SIZE = 4096
TIMER_WHEEL_SLOTS = 1209600
# MessageSysFlag
SYS_FLAG_COMPRESSED = 0x1
SYS_FLAG_MULTI_TAGS = 0x2
SYS_FLAG_BORN_HOST_V6 = 0x10
SYS_FLAG_STORE_HOST_V6 = 0x20
SYS_FLAG_NEED_UNWRAP = 0x40
SYS_FLAG_INNER_BATCH = 0x80
TRANSACTION_MASK = 0xC
COMPRESSION_SHIFT = 8
COMPRESSION_MASK = 0x700
