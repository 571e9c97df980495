#include "kube/field_error.h"

#include <nlohmann/json.hpp>

namespace sublet::kube {
namespace {

std::string Shown(const Json& value) {
  return value.is_string() ? GoQuote(value.get_ref<const std::string&>()) : Dump(value);
}

std::string WithDetail(std::string text, std::string_view detail) {
  if (!detail.empty()) {
    text.append(": ").append(detail);
  }
  return text;
}

}  // namespace

std::string FieldPath::Text() const {
  std::string out;
  AppendTo(&out);
  return out;
}

void FieldPath::AppendTo(std::string* out) const {
  if (parent_ != nullptr) {
    parent_->AppendTo(out);
  }
  if (index_ >= 0) {
    out->append("[").append(std::to_string(index_)).append("]");
  } else if (is_key_) {
    out->append("[").append(name_).append("]");
  } else {
    out->append(out->empty() ? "" : ".").append(name_);
  }
}

void FieldErrors::Invalid(std::string field, const Json& value, std::string_view detail) {
  causes_.push_back({"FieldValueInvalid", WithDetail("Invalid value: " + Shown(value), detail),
                     std::move(field)});
}

void FieldErrors::InvalidEach(const FieldPath& field, const Json& value,
                              const std::vector<std::string>& details) {
  for (const std::string& detail : details) {
    Invalid(field.Text(), value, detail);
  }
}

void FieldErrors::TypeInvalid(std::string field, const Json& value, std::string_view detail) {
  causes_.push_back({"FieldValueTypeInvalid", WithDetail("Invalid value: " + Shown(value), detail),
                     std::move(field)});
}

void FieldErrors::Required(std::string field, std::string_view detail) {
  causes_.push_back({"FieldValueRequired", WithDetail("Required value", detail), std::move(field)});
}

void FieldErrors::Forbidden(std::string field, std::string_view detail) {
  causes_.push_back({"FieldValueForbidden", WithDetail("Forbidden", detail), std::move(field)});
}

void FieldErrors::Duplicate(std::string field, const Json& value) {
  causes_.push_back({"FieldValueDuplicate", "Duplicate value: " + Shown(value), std::move(field)});
}

void FieldErrors::NotFound(std::string field, const Json& value) {
  causes_.push_back({"FieldValueNotFound", "Not found: " + Shown(value), std::move(field)});
}

namespace {

std::string SupportedText(const std::vector<std::string_view>& supported) {
  std::string detail;
  for (const std::string_view one : supported) {
    detail.append(detail.empty() ? "supported values: " : ", ").append(GoQuote(one));
  }
  return detail;
}

}  // namespace

void FieldErrors::NotSupported(std::string field, const Json& value,
                               const std::vector<std::string_view>& supported) {
  causes_.push_back({"FieldValueNotSupported",
                     WithDetail("Unsupported value: " + Shown(value), SupportedText(supported)),
                     std::move(field)});
}

void FieldErrors::InvalidShown(const FieldPath& field, std::string_view shown,
                               std::string_view detail) {
  causes_.push_back({"FieldValueInvalid",
                     WithDetail("Invalid value: " + std::string(shown), detail), field.Text()});
}

void FieldErrors::NotSupportedShown(const FieldPath& field, std::string_view shown,
                                    const std::vector<std::string_view>& supported) {
  causes_.push_back(
      {"FieldValueNotSupported",
       WithDetail("Unsupported value: " + std::string(shown), SupportedText(supported)),
       field.Text()});
}

void FieldErrors::DuplicateShown(const FieldPath& field, std::string_view shown) {
  causes_.push_back(
      {"FieldValueDuplicate", "Duplicate value: " + std::string(shown), field.Text()});
}

void FieldErrors::TooLong(std::string field, int bytes_max) {
  causes_.push_back({"FieldValueTooLong",
                     "Too long: may not be more than " + std::to_string(bytes_max) +
                         (bytes_max == 1 ? " byte" : " bytes"),
                     std::move(field)});
}

void FieldErrors::TooMany(std::string field, std::int64_t actual, std::int64_t max) {
  causes_.push_back({"FieldValueTooMany",
                     "Too many: " + std::to_string(actual) + ": must have at most " +
                         std::to_string(max) + (max == 1 ? " item" : " items"),
                     std::move(field)});
}

std::string FieldErrors::Aggregate() const {
  std::string out;
  for (const StatusCause& cause : causes_) {
    out.append(out.empty() ? "" : ", ").append(cause.field).append(": ").append(cause.message);
  }
  return causes_.size() > 1 ? "[" + out + "]" : out;
}

std::string GoQuote(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\a': out += "\\a"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      case '\v': out += "\\v"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          out += "\\x";
          out += kHex[static_cast<unsigned char>(c) >> 4];
          out += kHex[c & 15];
        } else {
          out += c;
        }
    }
  }
  return out + "\"";
}

std::string Join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    out.append(i == 0 ? "" : separator).append(parts[i]);
  }
  return out;
}

}  // namespace sublet::kube
