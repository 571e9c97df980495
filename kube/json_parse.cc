// Bytes to tree: Boost.JSON's event parser (five times nlohmann's speed) feeding nlohmann values.
// The parser is strict RFC 8259; a failure is worded by GoJsonError so that clients read the text
// they know from a real API server.
#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/src.hpp>  // Debian ships no static archive; this file carries the library
#include <charconv>
#include <nlohmann/json.hpp>

#include "kube/json.h"
#include "kube/json_error.h"

namespace sublet::kube {
namespace {

using boost::json::error_code;
using boost::json::string_view;

// Duplicates beyond this many are not listed; Kubernetes stops at 100 too.
constexpr std::size_t kDuplicatesMax = 100;

// Receives the events of one document. Pointers on the stack stay valid because a container gets
// no new child while an older child of it is open.
struct TreeHandler {
  static constexpr std::size_t max_object_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_array_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_key_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_string_size = static_cast<std::size_t>(-1);

  Json root;
  std::vector<Json*> stack;
  std::vector<std::string_view> keys;  // of the object members that are open; for paths
  std::string_view slot_key;           // of the last Slot() in an object; lives in the map node
  std::string key;
  std::string text;
  std::vector<std::string>* duplicates = nullptr;

  std::string PathTo(std::string_view last) const {
    std::string path;
    std::size_t next_key = 0;
    for (std::size_t i = 0; i + 1 < stack.size(); ++i) {
      if (stack[i]->is_object()) {
        path.append(path.empty() ? "" : ".").append(keys[next_key++]);
      } else {
        path.append("[").append(std::to_string(stack[i]->size() - 1)).append("]");
      }
    }
    path.append(path.empty() ? "" : ".").append(last);
    return path;
  }

  Json& Slot() {
    if (stack.empty()) {
      return root;
    }
    Json& top = *stack.back();
    if (top.is_array()) {
      return top.get_ref<Json::array_t&>().emplace_back();
    }
    auto& object = top.get_ref<Json::object_t&>();
    // Objects written by machines come sorted, so the end is the likely place.
    if (object.empty() || object.rbegin()->first < key) {
      const auto place = object.emplace_hint(object.end(), std::move(key), nullptr);
      slot_key = place->first;
      return place->second;
    }
    const auto [place, inserted] = object.try_emplace(std::move(key), nullptr);
    slot_key = place->first;
    if (!inserted) {
      if (duplicates != nullptr && duplicates->size() < kDuplicatesMax) {
        duplicates->push_back(PathTo(place->first));
      }
      place->second = nullptr;
    }
    return place->second;
  }

  void Open(Json container) {
    Json& slot = Slot();
    slot = std::move(container);
    if (!stack.empty() && stack.back()->is_object() && duplicates != nullptr) {
      keys.push_back(slot_key);
    }
    stack.push_back(&slot);
  }
  void Close() {
    stack.pop_back();
    if (!stack.empty() && stack.back()->is_object() && duplicates != nullptr) {
      keys.pop_back();
    }
  }

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code&) {
    Open(Json::object());
    return true;
  }
  bool on_object_end(std::size_t, error_code&) {
    Close();
    return true;
  }
  bool on_array_begin(error_code&) {
    Open(Json::array());
    return true;
  }
  bool on_array_end(std::size_t, error_code&) {
    Close();
    return true;
  }
  bool on_key_part(string_view s, std::size_t, error_code&) {
    text.append(s.data(), s.size());
    return true;
  }
  bool on_key(string_view s, std::size_t, error_code&) {
    if (text.empty()) {
      key.assign(s.data(), s.size());
    } else {
      text.append(s.data(), s.size());
      key = std::move(text);
      text.clear();
    }
    return true;
  }
  bool on_string_part(string_view s, std::size_t, error_code&) {
    text.append(s.data(), s.size());
    return true;
  }
  bool on_string(string_view s, std::size_t, error_code&) {
    Json& slot = Slot();
    if (text.empty()) {
      slot = Json::string_t(s.data(), s.size());
    } else {
      text.append(s.data(), s.size());
      slot = std::move(text);
      text.clear();
    }
    return true;
  }
  bool on_number_part(string_view, error_code&) { return true; }
  bool on_int64(std::int64_t value, string_view, error_code&) {
    Slot() = value;
    return true;
  }
  bool on_uint64(std::uint64_t value, string_view, error_code&) {
    if (value <= static_cast<std::uint64_t>(INT64_MAX)) {
      Slot() = static_cast<std::int64_t>(value);
    } else {
      Slot() = value;
    }
    return true;
  }
  bool on_double(double value, string_view s, error_code&) {
    // Boost 1.81 may be one unit in the last place off; from_chars is exact.
    double exact = value;
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), exact);
    Slot() = error == std::errc() && end == s.data() + s.size() ? exact : value;
    return true;
  }
  bool on_bool(bool value, error_code&) {
    Slot() = value;
    return true;
  }
  bool on_null(error_code&) {
    Slot() = nullptr;
    return true;
  }
  bool on_comment_part(string_view, error_code&) { return true; }
  bool on_comment(string_view, error_code&) { return true; }
};

Result<Json> Parse(std::string_view text, const JsonLimits& limits,
                   std::vector<std::string>* duplicate_fields) {
  if (text.size() > limits.bytes_max) {
    return Status(Reason::kRequestEntityTooLarge,
                  "Request entity too large: limit is " + std::to_string(limits.bytes_max));
  }
  boost::json::parse_options options;
  options.max_depth = limits.depth_max;
  boost::json::basic_parser<TreeHandler> parser(options);
  parser.handler().duplicates = duplicate_fields;
  error_code error;
  std::size_t used = parser.write_some(false, text.data(), text.size(), error);
  while (!error && used < text.size() &&
         (text[used] == ' ' || text[used] == '\n' || text[used] == '\r' || text[used] == '\t')) {
    ++used;
  }
  if (error == boost::json::error::too_deep) {
    return BadRequest("exceeded max depth");
  }
  if (error || used < text.size()) {
    return BadRequest(GoJsonError(text));
  }
  return std::move(parser.handler().root);
}

}  // namespace

Result<Json> ParseJson(std::string_view text, const JsonLimits& limits) {
  return Parse(text, limits, nullptr);
}

Result<Json> ParseJsonStrict(std::string_view text, const JsonLimits& limits,
                             std::vector<std::string>* duplicate_fields) {
  return Parse(text, limits, duplicate_fields);
}

}  // namespace sublet::kube
