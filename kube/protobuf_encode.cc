#include <nlohmann/json.hpp>

#include "kube/base64.h"
#include "kube/protobuf.h"
#include "kube/protobuf_wire.h"
#include "kube/timestamp.h"

namespace sublet::kube {
namespace {

using schema::Field;
using schema::Type;
using schema::ValueKind;

std::string_view TextOf(const Json& value) {
  return value.is_string() ? std::string_view(value.get_ref<const std::string&>())
                           : std::string_view();
}
std::uint64_t IntOf(const Json& value) {
  return value.is_number_integer() ? static_cast<std::uint64_t>(value.get<std::int64_t>()) : 0;
}

// The bytes of one value that is length-delimited on the wire.
std::string Payload(Type type, const Json& value);

void PutValue(int number, Type type, const Json& value, std::string* out) {
  switch (type.kind()) {
    case ValueKind::kInt32:
    case ValueKind::kInt64: return wire::PutNumber(number, IntOf(value), out);
    case ValueKind::kBool:
      return wire::PutNumber(number, value.is_boolean() && value.get<bool>() ? 1 : 0, out);
    case ValueKind::kFloat:
      return wire::PutDouble(number, value.is_number() ? value.get<double>() : 0, out);
    case ValueKind::kString: return wire::PutBytes(number, TextOf(value), out);
    default: return wire::PutBytes(number, Payload(type, value), out);
  }
}

std::string TimePayload(const Json& value) {
  std::string out;
  if (const auto time = FindTime(TextOf(value))) {
    const auto nanos = time->time_since_epoch();
    const auto seconds = std::chrono::floor<std::chrono::seconds>(nanos);
    wire::PutNumber(1, static_cast<std::uint64_t>(seconds.count()), &out);
    wire::PutNumber(2, static_cast<std::uint64_t>((nanos - seconds).count()), &out);
  }
  return out;
}

std::string SchemaPayload(Type type, const Json& value) {
  std::string out;
  const bool or_bool = type.kind() == ValueKind::kSchemaOrBool;
  if (value.is_object()) {
    if (or_bool) {
      wire::PutNumber(1, 1, &out);
    }
    wire::PutBytes(or_bool ? 2 : 1, EncodeMessage(type.element(), value), &out);
  } else if (value.is_boolean()) {
    wire::PutNumber(1, value.get<bool>() ? 1 : 0, &out);
  } else if (value.is_array()) {
    for (const Json& item : value) {
      wire::PutBytes(
          2, item.is_object() ? EncodeMessage(type.element(), item) : std::string(TextOf(item)),
          &out);
    }
  }
  return out;
}

std::string Payload(Type type, const Json& value) {
  std::string out;
  switch (type.kind()) {
    case ValueKind::kStruct: return EncodeMessage(type, value);
    case ValueKind::kBytes: return DecodeBase64(TextOf(value)).value_or("");
    case ValueKind::kQuantity: wire::PutBytes(1, TextOf(value), &out); return out;
    case ValueKind::kTime:
    case ValueKind::kMicroTime: return TimePayload(value);
    case ValueKind::kDuration: {
      const auto duration = ParseDuration(TextOf(value));
      wire::PutNumber(1, duration.ok() ? static_cast<std::uint64_t>(duration->count()) : 0, &out);
      return out;
    }
    case ValueKind::kIntOrString:
      wire::PutNumber(1, value.is_string() ? 1 : 0, &out);
      wire::PutNumber(2, IntOf(value), &out);
      wire::PutBytes(3, TextOf(value), &out);
      return out;
    case ValueKind::kFieldsV1:
    case ValueKind::kRawExtension:
    case ValueKind::kJson: wire::PutBytes(1, Dump(value), &out); return out;
    case ValueKind::kSchemaOrArray:
    case ValueKind::kSchemaOrBool:
    case ValueKind::kSchemaOrStrings: return SchemaPayload(type, value);
    case ValueKind::kList:
      for (const Json& item : value) {
        PutValue(1, type.element(), item, &out);
      }
      return out;
    default: return out;
  }
}

void PutField(const Field& field, const Json& value, std::string* out) {
  const Type type = field.type();
  if (type.kind() == ValueKind::kMap && value.is_object()) {
    for (const auto& [key, item] : value.get_ref<const Json::object_t&>()) {
      std::string entry;
      wire::PutBytes(1, key, &entry);
      PutValue(2, type.element(), item, &entry);
      wire::PutBytes(field.number(), entry, out);
    }
  } else if (type.kind() == ValueKind::kList && type.name().empty() && value.is_array()) {
    for (const Json& item : value) {
      PutValue(field.number(), type.element(), item, out);
    }
  } else {
    PutValue(field.number(), type, value, out);
  }
}

}  // namespace

std::string EncodeMessage(Type type, const Json& object) {
  std::string out;
  if (!object.is_object() || type.kind() != ValueKind::kStruct) {
    return out;
  }
  for (std::size_t i = 0; i < type.field_count(); ++i) {
    const Field field = type.field(i);
    if (field.Has(schema::kInline)) {
      const std::string inner = EncodeMessage(field.type(), object);
      wire::PutBytes(field.number(), inner, &out);
      continue;
    }
    if (field.number() == 0) {
      continue;
    }
    const Json* value = Find(object, {field.name()});
    if (value != nullptr && !value->is_null()) {
      PutField(field, *value, &out);
    }
  }
  return out;
}

std::string EncodeProtobuf(Type type, const Json& object) {
  std::string meta;
  wire::PutBytes(1, FindString(object, {"apiVersion"}), &meta);
  wire::PutBytes(2, FindString(object, {"kind"}), &meta);
  std::string unknown;
  wire::PutBytes(1, meta, &unknown);
  wire::PutBytes(2, EncodeMessage(type, object), &unknown);
  wire::PutBytes(3, "", &unknown);
  wire::PutBytes(4, "", &unknown);
  return std::string("k8s\0", 4) + unknown;
}

}  // namespace sublet::kube
