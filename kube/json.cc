#include "kube/json.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

namespace sublet::kube {
namespace {

// Length of the well-formed UTF-8 sequence at `p` (1-4), or 0.
std::size_t Utf8Length(const unsigned char* p, std::size_t left) {
  const auto tail = [&](std::size_t i) { return i < left && (p[i] & 0xc0) == 0x80; };
  if (p[0] < 0x80) {
    return 1;
  }
  if (p[0] >= 0xc2 && p[0] <= 0xdf) {
    return tail(1) ? 2 : 0;
  }
  if (p[0] >= 0xe0 && p[0] <= 0xef) {
    const bool ok =
        tail(1) && tail(2) && !(p[0] == 0xe0 && p[1] < 0xa0) && !(p[0] == 0xed && p[1] > 0x9f);
    return ok ? 3 : 0;
  }
  if (p[0] >= 0xf0 && p[0] <= 0xf4) {
    const bool ok = tail(1) && tail(2) && tail(3) && !(p[0] == 0xf0 && p[1] < 0x90) &&
                    !(p[0] == 0xf4 && p[1] > 0x8f);
    return ok ? 4 : 0;
  }
  return 0;
}

void AppendEscape(unsigned char c, std::string* out) {
  static constexpr char kHex[] = "0123456789abcdef";
  switch (c) {
    case '"': out->append("\\\""); return;
    case '\\': out->append("\\\\"); return;
    case '\n': out->append("\\n"); return;
    case '\r': out->append("\\r"); return;
    case '\t': out->append("\\t"); return;
    case '\b': out->append("\\b"); return;
    case '\f': out->append("\\f"); return;
    default:
      out->append("\\u00");
      out->push_back(kHex[c >> 4]);
      out->push_back(kHex[c & 15]);
  }
}

void AppendDouble(double value, std::string* out) {
  if (!std::isfinite(value)) {
    out->append("null");
    return;
  }
  char buffer[40];
  // Go writes integral floats without a fraction, and exponents beyond 1e21.
  const bool plain = value == 0 || (std::fabs(value) >= 1e-6 && std::fabs(value) < 1e21);
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific);
  out->append(buffer, end.ptr);
}

template <typename T>
void AppendInteger(T value, std::string* out) {
  char buffer[24];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value);
  out->append(buffer, end.ptr);
}

struct Writer {
  std::string* out;
  bool pretty;

  void Break(int depth) const {
    if (pretty) {
      out->push_back('\n');
      out->append(static_cast<std::size_t>(depth) * 2, ' ');
    }
  }

  void Object(const Json::object_t& object, int depth) const {
    if (object.empty()) {
      out->append("{}");
      return;
    }
    out->push_back('{');
    bool first = true;
    for (const auto& [key, value] : object) {
      if (!first) {
        out->push_back(',');
      }
      first = false;
      Break(depth + 1);
      AppendJsonString(key, out);
      out->append(pretty ? ": " : ":");
      Value(value, depth + 1);
    }
    Break(depth);
    out->push_back('}');
  }

  void Array(const Json::array_t& array, int depth) const {
    if (array.empty()) {
      out->append("[]");
      return;
    }
    out->push_back('[');
    bool first = true;
    for (const Json& value : array) {
      if (!first) {
        out->push_back(',');
      }
      first = false;
      Break(depth + 1);
      Value(value, depth + 1);
    }
    Break(depth);
    out->push_back(']');
  }

  void Value(const Json& value, int depth) const {
    switch (value.type()) {
      case Json::value_t::object: return Object(value.get_ref<const Json::object_t&>(), depth);
      case Json::value_t::array: return Array(value.get_ref<const Json::array_t&>(), depth);
      case Json::value_t::string: return AppendJsonString(value.get_ref<const std::string&>(), out);
      case Json::value_t::boolean: out->append(value.get<bool>() ? "true" : "false"); return;
      case Json::value_t::number_integer: return AppendInteger(value.get<std::int64_t>(), out);
      case Json::value_t::number_unsigned: return AppendInteger(value.get<std::uint64_t>(), out);
      case Json::value_t::number_float: return AppendDouble(value.get<double>(), out);
      default: out->append("null");
    }
  }
};

}  // namespace

void AppendJsonString(std::string_view text, std::string* out) {
  out->push_back('"');
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  std::size_t clean = 0;  // start of the bytes not yet copied
  for (std::size_t i = 0; i < text.size();) {
    const unsigned char c = p[i];
    if (c >= 0x20 && c < 0x80 && c != '"' && c != '\\') [[likely]] {
      ++i;
      continue;
    }
    const std::size_t length = c < 0x80 ? 0 : Utf8Length(p + i, text.size() - i);
    if (length > 0) {
      i += length;
      continue;
    }
    out->append(text.substr(clean, i - clean));
    if (c >= 0x80) {
      out->append("\xef\xbf\xbd");
    } else {
      AppendEscape(c, out);
    }
    clean = ++i;
  }
  out->append(text.substr(clean));
  out->push_back('"');
}

void AppendJson(const Json& value, std::string* out) { Writer{out, false}.Value(value, 0); }

std::string Dump(const Json& value) {
  std::string out;
  out.reserve(512);
  AppendJson(value, &out);
  return out;
}

std::string DumpPretty(const Json& value) {
  std::string out;
  Writer{&out, true}.Value(value, 0);
  return out;
}

const Json* Find(const Json& value, std::initializer_list<std::string_view> path) {
  const Json* at = &value;
  for (const std::string_view key : path) {
    if (!at->is_object()) {
      return nullptr;
    }
    const auto& object = at->get_ref<const Json::object_t&>();
    const auto it = object.find(key);
    if (it == object.end()) {
      return nullptr;
    }
    at = &it->second;
  }
  return at;
}

Json* Find(Json& value, std::initializer_list<std::string_view> path) {
  return const_cast<Json*>(Find(static_cast<const Json&>(value), path));
}

std::string_view FindString(const Json& value, std::initializer_list<std::string_view> path,
                            std::string_view fallback) {
  const Json* found = Find(value, path);
  return found != nullptr && found->is_string() ? found->get_ref<const std::string&>() : fallback;
}

std::int64_t FindInt(const Json& value, std::initializer_list<std::string_view> path,
                     std::int64_t fallback) {
  const Json* found = Find(value, path);
  return found != nullptr && found->is_number_integer() ? found->get<std::int64_t>() : fallback;
}

bool FindBool(const Json& value, std::initializer_list<std::string_view> path, bool fallback) {
  const Json* found = Find(value, path);
  return found != nullptr && found->is_boolean() ? found->get<bool>() : fallback;
}

}  // namespace sublet::kube
