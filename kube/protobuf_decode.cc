#include <chrono>
#include <cstdio>
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

constexpr std::string_view kMagic("k8s\0", 4);
constexpr int kDepthMax = 200;

Status Malformed() { return BadRequest("couldn't get version/kind; proto: illegal wire format"); }

struct Envelope {
  GroupVersionKind kind;
  std::string_view raw;
};

Result<Envelope> OpenEnvelope(std::string_view body) {
  if (!body.starts_with(kMagic)) {
    return BadRequest(
        "provided data does not appear to be a protobuf message, expected prefix "
        "[107 56 115 0]");
  }
  Envelope envelope;
  wire::Reader reader(body.substr(kMagic.size()));
  std::string_view type_meta;
  for (wire::Item item; reader.Next(&item);) {
    if (item.field == 1 && item.type == wire::kBytes) {
      type_meta = item.bytes;
    } else if (item.field == 2 && item.type == wire::kBytes) {
      envelope.raw = item.bytes;
    }
  }
  wire::Reader meta(type_meta);
  std::string api_version;
  for (wire::Item item; meta.Next(&item);) {
    if (item.field == 1 && item.type == wire::kBytes) {
      api_version = item.bytes;
    } else if (item.field == 2 && item.type == wire::kBytes) {
      envelope.kind.kind = item.bytes;
    }
  }
  if (reader.failed() || meta.failed()) {
    return Malformed();
  }
  const GroupVersion version = GroupVersion::Parse(api_version);
  envelope.kind.group = version.group;
  envelope.kind.version = version.version;
  return envelope;
}

class Decoder {
 public:
  bool Message(Type type, std::string_view bytes, int depth, Json* object);
  bool Value(Type type, std::string_view bytes, int depth, Json* out);

 private:
  bool Scalar(Type type, const wire::Item& item, int depth, Json* out);
  bool ListItem(Type list, const wire::Item& item, int depth, Json* out);
  bool MapEntry(Type map, std::string_view bytes, int depth, Json* out);
  bool Schema(Type type, std::string_view bytes, int depth, Json* out);
};

bool IsVarintKind(ValueKind kind) {
  return kind == ValueKind::kInt32 || kind == ValueKind::kInt64 || kind == ValueKind::kBool;
}

Json NumberOf(ValueKind kind, std::uint64_t number) {
  if (kind == ValueKind::kBool) {
    return number != 0;
  }
  if (kind == ValueKind::kInt32) {
    return static_cast<std::int64_t>(static_cast<std::int32_t>(number));
  }
  return static_cast<std::int64_t>(number);
}

// The JSON that a RawExtension carries: text, or another object in its own envelope.
bool Raw(std::string_view bytes, Json* out) {
  if (bytes.empty()) {
    *out = nullptr;
    return true;
  }
  auto parsed = IsProtobuf(bytes) ? DecodeProtobuf(bytes) : ParseJson(bytes);
  if (!parsed.ok()) {
    return false;
  }
  *out = std::move(parsed).value();
  return true;
}

// A time that the clock's type cannot hold (it ends after 292 years on either side of 1970): as
// text, which is all that becomes of it.
std::string FarTimeText(std::int64_t seconds, std::int64_t nanos, bool micro) {
  const std::chrono::sys_seconds time{std::chrono::seconds(seconds)};
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  char buffer[64];
  int n = std::snprintf(buffer, sizeof(buffer), "%04d-%02u-%02uT%02d:%02d:%02d",
                        static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                        static_cast<unsigned>(date.day()), static_cast<int>(clock.hours().count()),
                        static_cast<int>(clock.minutes().count()),
                        static_cast<int>(clock.seconds().count()));
  std::string out(buffer, static_cast<std::size_t>(n));
  if (micro) {
    n = std::snprintf(buffer, sizeof(buffer), ".%06d", static_cast<int>(nanos / 1000));
    out.append(buffer, static_cast<std::size_t>(n));
  }
  return out + "Z";
}

// {1: seconds, 2: nanos}; an empty message is no time.
bool Time(std::string_view bytes, bool micro, Json* out) {
  wire::Reader reader(bytes);
  std::int64_t seconds = 0;
  std::int64_t nanos = 0;
  for (wire::Item item; reader.Next(&item);) {
    if (item.type == wire::kVarint) {
      (item.field == 1 ? seconds : nanos) = static_cast<std::int64_t>(item.number);
    }
  }
  constexpr std::int64_t kYear1 = -62'135'596'800;
  constexpr std::int64_t kYear10000 = 253'402'300'800;
  if (reader.failed() || seconds >= kYear10000 || seconds < kYear1 || nanos < 0 ||
      nanos > 999'999'999) {
    return false;
  }
  if (bytes.empty()) {
    *out = nullptr;
    return true;
  }
  if (seconds > 9'000'000'000 || seconds < -9'000'000'000) {
    *out = FarTimeText(seconds, nanos, micro);
    return true;
  }
  const WallTime time{std::chrono::duration_cast<WallTime::duration>(
      std::chrono::seconds(seconds) + std::chrono::nanoseconds(nanos))};
  *out = micro ? FormatMicroTime(time) : FormatTime(time);
  return true;
}

// {1: type, 2: number, 3: text}.
bool IntOrText(std::string_view bytes, Json* out) {
  wire::Reader reader(bytes);
  bool is_text = false;
  std::int64_t number = 0;
  std::string_view text;
  for (wire::Item item; reader.Next(&item);) {
    if (item.field == 1) {
      is_text = item.number == 1;
    } else if (item.field == 2) {
      number = static_cast<std::int32_t>(item.number);
    } else if (item.field == 3) {
      text = item.bytes;
    }
  }
  *out = is_text ? Json(std::string(text)) : Json(number);
  return !reader.failed();
}

// The single bytes field 1 of a wrapper message.
bool Unwrap(std::string_view bytes, std::string_view* out) {
  wire::Reader reader(bytes);
  for (wire::Item item; reader.Next(&item);) {
    if (item.field == 1 && item.type == wire::kBytes) {
      *out = item.bytes;
    }
  }
  return !reader.failed();
}

bool Decoder::Schema(Type type, std::string_view bytes, int depth, Json* out) {
  const bool or_bool = type.kind() == ValueKind::kSchemaOrBool;
  const std::uint32_t schema_field = or_bool ? 2 : 1;
  wire::Reader reader(bytes);
  *out = or_bool ? Json(false) : Json(nullptr);
  for (wire::Item item; reader.Next(&item);) {
    if (item.type == wire::kVarint && or_bool) {
      if (!out->is_object()) {
        *out = item.number != 0;
      }
    } else if (item.type != wire::kBytes) {
      return false;
    } else if (item.field == schema_field) {
      *out = Json::object();
      if (!Message(type.element(), item.bytes, depth + 1, out)) {
        return false;
      }
    } else {
      if (!out->is_array()) {
        *out = Json::array();
      }
      Json one = std::string(item.bytes);
      if (type.kind() == ValueKind::kSchemaOrArray) {
        one = Json::object();
        if (!Message(type.element(), item.bytes, depth + 1, &one)) {
          return false;
        }
      }
      out->push_back(std::move(one));
    }
  }
  return !reader.failed();
}

bool Decoder::Value(Type type, std::string_view bytes, int depth, Json* out) {
  std::string_view inner;
  switch (type.kind()) {
    case ValueKind::kStruct: *out = Json::object(); return Message(type, bytes, depth + 1, out);
    case ValueKind::kString: *out = std::string(bytes); return true;
    case ValueKind::kBytes: *out = EncodeBase64(bytes); return true;
    case ValueKind::kQuantity:
      if (!Unwrap(bytes, &inner)) {
        return false;
      }
      *out = inner.empty() ? std::string("0") : std::string(inner);
      return true;
    case ValueKind::kTime:
    case ValueKind::kMicroTime: return Time(bytes, type.kind() == ValueKind::kMicroTime, out);
    case ValueKind::kDuration: {
      wire::Reader reader(bytes);
      std::int64_t nanos = 0;
      for (wire::Item item; reader.Next(&item);) {
        nanos = static_cast<std::int64_t>(item.number);
      }
      *out = FormatDuration(std::chrono::nanoseconds(nanos));
      return !reader.failed();
    }
    case ValueKind::kIntOrString: return IntOrText(bytes, out);
    case ValueKind::kFieldsV1:
    case ValueKind::kRawExtension:
    case ValueKind::kJson: return Unwrap(bytes, &inner) && Raw(inner, out);
    case ValueKind::kSchemaOrArray:
    case ValueKind::kSchemaOrBool:
    case ValueKind::kSchemaOrStrings: return Schema(type, bytes, depth, out);
    case ValueKind::kList: {  // a named list is a message with its items in field 1
      *out = Json::array();
      wire::Reader reader(bytes);
      for (wire::Item item; reader.Next(&item);) {
        if (item.field == 1 && !ListItem(type, item, depth, out)) {
          return false;
        }
      }
      return !reader.failed();
    }
    default: return false;
  }
}

bool Decoder::Scalar(Type type, const wire::Item& item, int depth, Json* out) {
  if (IsVarintKind(type.kind())) {
    *out = NumberOf(type.kind(), item.number);
    return item.type == wire::kVarint;
  }
  if (type.kind() == ValueKind::kFloat) {
    *out = std::bit_cast<double>(item.number);
    return item.type == wire::kFixed64;
  }
  return item.type == wire::kBytes && Value(type, item.bytes, depth, out);
}

bool Decoder::ListItem(Type list, const wire::Item& item, int depth, Json* out) {
  if (!out->is_array()) {
    *out = Json::array();
  }
  const Type element = list.element();
  if (item.type == wire::kBytes && IsVarintKind(element.kind())) {  // packed
    wire::Reader reader(item.bytes);
    for (std::uint64_t number = 0; !reader.empty();) {
      if (!reader.Varint(&number)) {
        return false;
      }
      out->push_back(NumberOf(element.kind(), number));
    }
    return true;
  }
  Json value;
  if (!Scalar(element, item, depth, &value)) {
    return false;
  }
  out->push_back(std::move(value));
  return true;
}

bool Decoder::MapEntry(Type map, std::string_view bytes, int depth, Json* out) {
  if (!out->is_object()) {
    *out = Json::object();
  }
  const Type element = map.element();
  std::string key;
  Json value;
  bool has_value = false;
  wire::Reader reader(bytes);
  for (wire::Item item; reader.Next(&item);) {
    if (item.field == 1 && item.type == wire::kBytes) {
      key = item.bytes;
    } else if (item.field == 2) {
      has_value = true;
      if (!Scalar(element, item, depth, &value)) {
        return false;
      }
    }
  }
  if (!has_value && !IsVarintKind(element.kind()) && !Value(element, "", depth, &value)) {
    return false;
  }
  (*out)[key] = std::move(value);
  return !reader.failed();
}

bool Decoder::Message(Type type, std::string_view bytes, int depth, Json* object) {
  if (depth > kDepthMax) {
    return false;
  }
  wire::Reader reader(bytes);
  for (wire::Item item; reader.Next(&item);) {
    const Field field = type.FindNumber(static_cast<int>(item.field));
    if (!field) {
      continue;  // of a newer version
    }
    const Type field_type = field.type();
    if (field.Has(schema::kInline)) {
      if (item.type != wire::kBytes || !Message(field_type, item.bytes, depth + 1, object)) {
        return false;
      }
      continue;
    }
    Json& slot = (*object)[std::string(field.name())];
    bool ok = false;
    if (field_type.kind() == ValueKind::kMap) {
      ok = item.type == wire::kBytes && MapEntry(field_type, item.bytes, depth, &slot);
    } else if (field_type.kind() == ValueKind::kList && field_type.name().empty()) {
      ok = ListItem(field_type, item, depth, &slot);
    } else {
      ok = Scalar(field_type, item, depth, &slot);
    }
    if (!ok) {
      return false;
    }
  }
  return !reader.failed();
}

}  // namespace

bool IsProtobuf(std::string_view body) { return body.starts_with(kMagic); }

Result<GroupVersionKind> ProtobufKind(std::string_view body) {
  SUBLET_TRY(const Envelope envelope, OpenEnvelope(body));
  return envelope.kind;
}

Result<Json> DecodeMessage(Type type, std::string_view bytes) {
  Json object = Json::object();
  if (!Decoder().Message(type, bytes, 0, &object)) {
    return Malformed();
  }
  return object;
}

Result<Json> DecodeProtobuf(std::string_view body) {
  SUBLET_TRY(const Envelope envelope, OpenEnvelope(body));
  const Type type =
      schema::FindType(envelope.kind.group, envelope.kind.version, envelope.kind.kind);
  if (!type || type.kind() != ValueKind::kStruct) {
    return BadRequest("no kind \"" + envelope.kind.kind + "\" is registered for version \"" +
                      envelope.kind.ApiVersion() + "\" in scheme");
  }
  SUBLET_TRY(Json object, DecodeMessage(type, envelope.raw));
  object["apiVersion"] = envelope.kind.ApiVersion();
  object["kind"] = envelope.kind.kind;
  return object;
}

}  // namespace sublet::kube
