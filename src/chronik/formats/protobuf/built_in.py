"""The `.proto` files of Google and Confluent that schemas can import without a reference.

They declare the names, numbers and types of the public interfaces, without comments and options.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from chronik.formats.protobuf.syntax import ProtoFile, parse_file


def _declare(package: str, declarations: str, *imports: str, syntax: str = "proto3") -> str:
    lines = [f'syntax = "{syntax}"; package {package};', *(f'import "{path}";' for path in imports), declarations]
    return "\n".join(lines)


_OPTIONS_END: Final = (
    "repeated UninterpretedOption uninterpreted_option = 999; extensions 1000 to max; reserved 990 to 998;"
)

_DESCRIPTOR: Final = """
message FileDescriptorSet { repeated FileDescriptorProto file = 1; extensions 536000000; }
message FileDescriptorProto {
  optional string name = 1; optional string package = 2; repeated string dependency = 3;
  repeated int32 public_dependency = 10; repeated int32 weak_dependency = 11; repeated string option_dependency = 15;
  repeated DescriptorProto message_type = 4; repeated EnumDescriptorProto enum_type = 5;
  repeated ServiceDescriptorProto service = 6; repeated FieldDescriptorProto extension = 7;
  optional FileOptions options = 8; optional SourceCodeInfo source_code_info = 9;
  optional string syntax = 12; optional Edition edition = 14;
}
message DescriptorProto {
  message ExtensionRange {
    optional int32 start = 1; optional int32 end = 2; optional ExtensionRangeOptions options = 3;
  }
  message ReservedRange { optional int32 start = 1; optional int32 end = 2; }
  optional string name = 1; repeated FieldDescriptorProto field = 2; repeated FieldDescriptorProto extension = 6;
  repeated DescriptorProto nested_type = 3; repeated EnumDescriptorProto enum_type = 4;
  repeated ExtensionRange extension_range = 5; repeated OneofDescriptorProto oneof_decl = 8;
  optional MessageOptions options = 7; repeated ReservedRange reserved_range = 9; repeated string reserved_name = 10;
  optional SymbolVisibility visibility = 11;
}
message ExtensionRangeOptions {
  message Declaration {
    optional int32 number = 1; optional string full_name = 2; optional string type = 3;
    optional bool reserved = 5; optional bool repeated = 6;
  }
  enum VerificationState { DECLARATION = 0; UNVERIFIED = 1; }
  repeated Declaration declaration = 2; optional FeatureSet features = 50;
  optional VerificationState verification = 3 [default = UNVERIFIED]; OPTIONS_END
}
message FieldDescriptorProto {
  enum Type {
    TYPE_DOUBLE = 1; TYPE_FLOAT = 2; TYPE_INT64 = 3; TYPE_UINT64 = 4; TYPE_INT32 = 5; TYPE_FIXED64 = 6;
    TYPE_FIXED32 = 7; TYPE_BOOL = 8; TYPE_STRING = 9; TYPE_GROUP = 10; TYPE_MESSAGE = 11; TYPE_BYTES = 12;
    TYPE_UINT32 = 13; TYPE_ENUM = 14; TYPE_SFIXED32 = 15; TYPE_SFIXED64 = 16; TYPE_SINT32 = 17; TYPE_SINT64 = 18;
  }
  enum Label { LABEL_OPTIONAL = 1; LABEL_REPEATED = 3; LABEL_REQUIRED = 2; }
  optional string name = 1; optional int32 number = 3; optional Label label = 4; optional Type type = 5;
  optional string type_name = 6; optional string extendee = 2; optional string default_value = 7;
  optional int32 oneof_index = 9; optional string json_name = 10; optional FieldOptions options = 8;
  optional bool proto3_optional = 17;
}
message OneofDescriptorProto { optional string name = 1; optional OneofOptions options = 2; }
message EnumDescriptorProto {
  message EnumReservedRange { optional int32 start = 1; optional int32 end = 2; }
  optional string name = 1; repeated EnumValueDescriptorProto value = 2; optional EnumOptions options = 3;
  repeated EnumReservedRange reserved_range = 4; repeated string reserved_name = 5;
  optional SymbolVisibility visibility = 6;
}
message EnumValueDescriptorProto {
  optional string name = 1; optional int32 number = 2; optional EnumValueOptions options = 3;
}
message ServiceDescriptorProto {
  optional string name = 1; repeated MethodDescriptorProto method = 2; optional ServiceOptions options = 3;
}
message MethodDescriptorProto {
  optional string name = 1; optional string input_type = 2; optional string output_type = 3;
  optional MethodOptions options = 4; optional bool client_streaming = 5; optional bool server_streaming = 6;
}
message FileOptions {
  enum OptimizeMode { SPEED = 1; CODE_SIZE = 2; LITE_RUNTIME = 3; }
  optional string java_package = 1; optional string java_outer_classname = 8; optional bool java_multiple_files = 10;
  optional bool java_generate_equals_and_hash = 20; optional bool java_string_check_utf8 = 27;
  optional OptimizeMode optimize_for = 9 [default = SPEED]; optional string go_package = 11;
  optional bool cc_generic_services = 16; optional bool java_generic_services = 17;
  optional bool py_generic_services = 18; optional bool deprecated = 23;
  optional bool cc_enable_arenas = 31 [default = true]; optional string objc_class_prefix = 36;
  optional string csharp_namespace = 37; optional string swift_prefix = 39; optional string php_class_prefix = 40;
  optional string php_namespace = 41; optional string php_metadata_namespace = 44; optional string ruby_package = 45;
  optional FeatureSet features = 50; OPTIONS_END
}
message MessageOptions {
  optional bool message_set_wire_format = 1; optional bool no_standard_descriptor_accessor = 2;
  optional bool deprecated = 3; optional bool map_entry = 7;
  optional bool deprecated_legacy_json_field_conflicts = 11; optional FeatureSet features = 12; OPTIONS_END
}
message FieldOptions {
  enum CType { STRING = 0; CORD = 1; STRING_PIECE = 2; }
  enum JSType { JS_NORMAL = 0; JS_STRING = 1; JS_NUMBER = 2; }
  enum OptionRetention { RETENTION_UNKNOWN = 0; RETENTION_RUNTIME = 1; RETENTION_SOURCE = 2; }
  enum OptionTargetType {
    TARGET_TYPE_UNKNOWN = 0; TARGET_TYPE_FILE = 1; TARGET_TYPE_EXTENSION_RANGE = 2; TARGET_TYPE_MESSAGE = 3;
    TARGET_TYPE_FIELD = 4; TARGET_TYPE_ONEOF = 5; TARGET_TYPE_ENUM = 6; TARGET_TYPE_ENUM_ENTRY = 7;
    TARGET_TYPE_SERVICE = 8; TARGET_TYPE_METHOD = 9;
  }
  message EditionDefault { optional Edition edition = 3; optional string value = 2; }
  message FeatureSupport {
    optional Edition edition_introduced = 1; optional Edition edition_deprecated = 2;
    optional string deprecation_warning = 3; optional Edition edition_removed = 4; optional string removal_error = 5;
  }
  optional CType ctype = 1 [default = STRING]; optional bool packed = 2;
  optional JSType jstype = 6 [default = JS_NORMAL]; optional bool lazy = 5; optional bool unverified_lazy = 15;
  optional bool deprecated = 3; optional bool weak = 10; optional bool debug_redact = 16;
  optional OptionRetention retention = 17; repeated OptionTargetType targets = 19;
  repeated EditionDefault edition_defaults = 20; optional FeatureSet features = 21;
  optional FeatureSupport feature_support = 22; OPTIONS_END
}
message OneofOptions { optional FeatureSet features = 1; OPTIONS_END }
message EnumOptions {
  optional bool allow_alias = 2; optional bool deprecated = 3;
  optional bool deprecated_legacy_json_field_conflicts = 6; optional FeatureSet features = 7; OPTIONS_END
}
message EnumValueOptions {
  optional bool deprecated = 1; optional FeatureSet features = 2; optional bool debug_redact = 3;
  optional FieldOptions.FeatureSupport feature_support = 4; OPTIONS_END
}
message ServiceOptions { optional FeatureSet features = 34; optional bool deprecated = 33; OPTIONS_END }
message MethodOptions {
  enum IdempotencyLevel { IDEMPOTENCY_UNKNOWN = 0; NO_SIDE_EFFECTS = 1; IDEMPOTENT = 2; }
  optional bool deprecated = 33; optional IdempotencyLevel idempotency_level = 34 [default = IDEMPOTENCY_UNKNOWN];
  optional FeatureSet features = 35; OPTIONS_END
}
message UninterpretedOption {
  message NamePart { required string name_part = 1; required bool is_extension = 2; }
  repeated NamePart name = 2; optional string identifier_value = 3; optional uint64 positive_int_value = 4;
  optional int64 negative_int_value = 5; optional double double_value = 6; optional bytes string_value = 7;
  optional string aggregate_value = 8;
}
message FeatureSet {
  enum FieldPresence { FIELD_PRESENCE_UNKNOWN = 0; EXPLICIT = 1; IMPLICIT = 2; LEGACY_REQUIRED = 3; }
  enum EnumType { ENUM_TYPE_UNKNOWN = 0; OPEN = 1; CLOSED = 2; }
  enum RepeatedFieldEncoding { REPEATED_FIELD_ENCODING_UNKNOWN = 0; PACKED = 1; EXPANDED = 2; }
  enum Utf8Validation { UTF8_VALIDATION_UNKNOWN = 0; VERIFY = 2; NONE = 3; reserved 1; }
  enum MessageEncoding { MESSAGE_ENCODING_UNKNOWN = 0; LENGTH_PREFIXED = 1; DELIMITED = 2; }
  enum JsonFormat { JSON_FORMAT_UNKNOWN = 0; ALLOW = 1; LEGACY_BEST_EFFORT = 2; }
  optional FieldPresence field_presence = 1; optional EnumType enum_type = 2;
  optional RepeatedFieldEncoding repeated_field_encoding = 3; optional Utf8Validation utf8_validation = 4;
  optional MessageEncoding message_encoding = 5; optional JsonFormat json_format = 6;
  extensions 1000 to 10000; reserved 999;
}
message FeatureSetDefaults {
  message FeatureSetEditionDefault {
    optional Edition edition = 3; optional FeatureSet overridable_features = 4; optional FeatureSet fixed_features = 5;
  }
  repeated FeatureSetEditionDefault defaults = 1; optional Edition minimum_edition = 4;
  optional Edition maximum_edition = 5;
}
message SourceCodeInfo {
  message Location {
    repeated int32 path = 1 [packed = true]; repeated int32 span = 2 [packed = true];
    optional string leading_comments = 3; optional string trailing_comments = 4;
    repeated string leading_detached_comments = 6;
  }
  repeated Location location = 1; extensions 536000000;
}
message GeneratedCodeInfo {
  message Annotation {
    enum Semantic { NONE = 0; SET = 1; ALIAS = 2; }
    repeated int32 path = 1 [packed = true]; optional string source_file = 2; optional int32 begin = 3;
    optional int32 end = 4; optional Semantic semantic = 5;
  }
  repeated Annotation annotation = 1;
}
enum Edition {
  EDITION_UNKNOWN = 0; EDITION_LEGACY = 900; EDITION_PROTO2 = 998; EDITION_PROTO3 = 999; EDITION_2023 = 1000;
  EDITION_2024 = 1001; EDITION_1_TEST_ONLY = 1; EDITION_2_TEST_ONLY = 2; EDITION_99997_TEST_ONLY = 99997;
  EDITION_99998_TEST_ONLY = 99998; EDITION_99999_TEST_ONLY = 99999; EDITION_MAX = 0x7FFFFFFF;
}
enum SymbolVisibility { VISIBILITY_UNSET = 0; VISIBILITY_LOCAL = 1; VISIBILITY_EXPORT = 2; }
""".replace("OPTIONS_END", _OPTIONS_END)

_API: Final = """
message Api {
  string name = 1; repeated Method methods = 2; repeated Option options = 3; string version = 4;
  SourceContext source_context = 5; repeated Mixin mixins = 6; Syntax syntax = 7; string edition = 8;
}
message Method {
  string name = 1; string request_type_url = 2; bool request_streaming = 3; string response_type_url = 4;
  bool response_streaming = 5; repeated Option options = 6; Syntax syntax = 7; string edition = 8;
}
message Mixin { string name = 1; string root = 2; }
"""

_TYPE: Final = """
message Type {
  string name = 1; repeated Field fields = 2; repeated string oneofs = 3; repeated Option options = 4;
  SourceContext source_context = 5; Syntax syntax = 6; string edition = 7;
}
message Field {
  enum Kind {
    TYPE_UNKNOWN = 0; TYPE_DOUBLE = 1; TYPE_FLOAT = 2; TYPE_INT64 = 3; TYPE_UINT64 = 4; TYPE_INT32 = 5;
    TYPE_FIXED64 = 6; TYPE_FIXED32 = 7; TYPE_BOOL = 8; TYPE_STRING = 9; TYPE_GROUP = 10; TYPE_MESSAGE = 11;
    TYPE_BYTES = 12; TYPE_UINT32 = 13; TYPE_ENUM = 14; TYPE_SFIXED32 = 15; TYPE_SFIXED64 = 16; TYPE_SINT32 = 17;
    TYPE_SINT64 = 18;
  }
  enum Cardinality {
    CARDINALITY_UNKNOWN = 0; CARDINALITY_OPTIONAL = 1; CARDINALITY_REQUIRED = 2; CARDINALITY_REPEATED = 3;
  }
  Kind kind = 1; Cardinality cardinality = 2; int32 number = 3; string name = 4; string type_url = 6;
  int32 oneof_index = 7; bool packed = 8; repeated Option options = 9; string json_name = 10;
  string default_value = 11;
}
message Enum {
  string name = 1; repeated EnumValue enumvalue = 2; repeated Option options = 3;
  SourceContext source_context = 4; Syntax syntax = 5; string edition = 6;
}
message EnumValue { string name = 1; int32 number = 2; repeated Option options = 3; }
message Option { string name = 1; Any value = 2; }
enum Syntax { SYNTAX_PROTO2 = 0; SYNTAX_PROTO3 = 1; SYNTAX_EDITIONS = 2; }
"""

_WRAPPERS: Final = "".join(
    f"message {name}Value {{ {scalar} value = 1; }}\n"
    for name, scalar in (
        ("Double", "double"),
        ("Float", "float"),
        ("Int64", "int64"),
        ("UInt64", "uint64"),
        ("Int32", "int32"),
        ("UInt32", "uint32"),
        ("Bool", "bool"),
        ("String", "string"),
        ("Bytes", "bytes"),
    )
)

_STRUCT: Final = """
message Struct { map<string, Value> fields = 1; }
message Value {
  oneof kind {
    NullValue null_value = 1; double number_value = 2; string string_value = 3; bool bool_value = 4;
    Struct struct_value = 5; ListValue list_value = 6;
  }
}
enum NullValue { NULL_VALUE = 0; }
message ListValue { repeated Value values = 1; }
"""

_META: Final = """
message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; repeated Rule rules = 4; }
message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }
""" + "".join(
    f"extend google.protobuf.{options} {{ Meta {name} = 1088; }}\n"
    for options, name in (
        ("FileOptions", "file_meta"),
        ("MessageOptions", "message_meta"),
        ("FieldOptions", "field_meta"),
        ("EnumOptions", "enum_meta"),
        ("EnumValueOptions", "enum_value_meta"),
    )
)

_DATETIME: Final = """
message DateTime {
  int32 year = 1; int32 month = 2; int32 day = 3; int32 hours = 4; int32 minutes = 5; int32 seconds = 6;
  int32 nanos = 7;
  oneof time_offset { google.protobuf.Duration utc_offset = 8; TimeZone time_zone = 9; }
}
message TimeZone { string id = 1; string version = 2; }
"""

_PHONE_NUMBER: Final = """
message PhoneNumber {
  message ShortCode { string region_code = 1; string number = 2; }
  oneof kind { string e164_number = 1; ShortCode short_code = 2; }
  string extension = 3;
}
"""

_POSTAL_ADDRESS: Final = """
message PostalAddress {
  int32 revision = 1; string region_code = 2; string language_code = 3; string postal_code = 4;
  string sorting_code = 5; string administrative_area = 6; string locality = 7; string sublocality = 8;
  repeated string address_lines = 9; repeated string recipients = 10; string organization = 11;
}
"""


def _enumerate(name: str, first: str, *values: str) -> str:
    declarations = "; ".join(f"{value} = {number}" for number, value in enumerate((first, *values)))
    return f"enum {name} {{ {declarations}; }}"


_DAYS: Final = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")
_MONTHS: Final = (
    *("JANUARY", "FEBRUARY", "MARCH", "APRIL", "MAY", "JUNE"),
    *("JULY", "AUGUST", "SEPTEMBER", "OCTOBER", "NOVEMBER", "DECEMBER"),
)
_PERIODS: Final = ("DAY", "WEEK", "FORTNIGHT", "MONTH", "QUARTER", "HALF", "YEAR")

_TEXTS: Final[Mapping[str, str]] = {
    "confluent/meta.proto": _declare("confluent", _META, "google/protobuf/descriptor.proto"),
    "confluent/type/decimal.proto": _declare(
        "confluent.type", "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }"
    ),
    "confluent/type/variant.proto": _declare(
        "confluent.type", "message Variant { bytes metadata = 1; bytes value = 2; }"
    ),
    "google/protobuf/any.proto": _declare("google.protobuf", "message Any { string type_url = 1; bytes value = 2; }"),
    "google/protobuf/api.proto": _declare(
        "google.protobuf", _API, "google/protobuf/source_context.proto", "google/protobuf/type.proto"
    ),
    "google/protobuf/descriptor.proto": _declare("google.protobuf", _DESCRIPTOR, syntax="proto2"),
    "google/protobuf/duration.proto": _declare(
        "google.protobuf", "message Duration { int64 seconds = 1; int32 nanos = 2; }"
    ),
    "google/protobuf/empty.proto": _declare("google.protobuf", "message Empty {}"),
    "google/protobuf/field_mask.proto": _declare("google.protobuf", "message FieldMask { repeated string paths = 1; }"),
    "google/protobuf/source_context.proto": _declare(
        "google.protobuf", "message SourceContext { string file_name = 1; }"
    ),
    "google/protobuf/struct.proto": _declare("google.protobuf", _STRUCT),
    "google/protobuf/timestamp.proto": _declare(
        "google.protobuf", "message Timestamp { int64 seconds = 1; int32 nanos = 2; }"
    ),
    "google/protobuf/type.proto": _declare(
        "google.protobuf", _TYPE, "google/protobuf/any.proto", "google/protobuf/source_context.proto"
    ),
    "google/protobuf/wrappers.proto": _declare("google.protobuf", _WRAPPERS),
    "google/type/calendar_period.proto": _declare(
        "google.type", _enumerate("CalendarPeriod", "CALENDAR_PERIOD_UNSPECIFIED", *_PERIODS)
    ),
    "google/type/color.proto": _declare(
        "google.type",
        "message Color { float red = 1; float green = 2; float blue = 3; google.protobuf.FloatValue alpha = 4; }",
        "google/protobuf/wrappers.proto",
    ),
    "google/type/date.proto": _declare(
        "google.type", "message Date { int32 year = 1; int32 month = 2; int32 day = 3; }"
    ),
    "google/type/datetime.proto": _declare("google.type", _DATETIME, "google/protobuf/duration.proto"),
    "google/type/dayofweek.proto": _declare("google.type", _enumerate("DayOfWeek", "DAY_OF_WEEK_UNSPECIFIED", *_DAYS)),
    "google/type/decimal.proto": _declare("google.type", "message Decimal { string value = 1; }"),
    "google/type/expr.proto": _declare(
        "google.type",
        "message Expr { string expression = 1; string title = 2; string description = 3; string location = 4; }",
    ),
    "google/type/fraction.proto": _declare(
        "google.type", "message Fraction { int64 numerator = 1; int64 denominator = 2; }"
    ),
    "google/type/interval.proto": _declare(
        "google.type",
        "message Interval { google.protobuf.Timestamp start_time = 1; google.protobuf.Timestamp end_time = 2; }",
        "google/protobuf/timestamp.proto",
    ),
    "google/type/latlng.proto": _declare(
        "google.type", "message LatLng { double latitude = 1; double longitude = 2; }"
    ),
    "google/type/money.proto": _declare(
        "google.type", "message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }"
    ),
    "google/type/month.proto": _declare("google.type", _enumerate("Month", "MONTH_UNSPECIFIED", *_MONTHS)),
    "google/type/phone_number.proto": _declare("google.type", _PHONE_NUMBER),
    "google/type/postal_address.proto": _declare("google.type", _POSTAL_ADDRESS),
    "google/type/quaternion.proto": _declare(
        "google.type", "message Quaternion { double x = 1; double y = 2; double z = 3; double w = 4; }"
    ),
    "google/type/timeofday.proto": _declare(
        "google.type", "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }"
    ),
}

BUILT_IN_PATHS: Final = tuple(_TEXTS)
"""Files that schemas can import without a reference, as in Confluent's registry."""


@cache
def built_in_files() -> Mapping[str, ProtoFile]:
    """Return the built-in files by path."""
    return {path: parse_file(text) for path, text in _TEXTS.items()}
