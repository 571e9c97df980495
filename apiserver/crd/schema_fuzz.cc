// Schemas and objects from outside: the first line of the input is a schema, the rest an object of
// it. Whatever they are, checking, compiling and validating must end without harm.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "apiserver/crd/schema_validator.h"
#include "apiserver/crd/structural.h"
#include "kube/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sublet;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto line = text.find('\n');
  const auto schema = kube::ParseJson(text.substr(0, line));
  if (!schema.ok()) {
    return 0;
  }
  kube::FieldErrors structural;
  apiserver::ValidateStructuralSchema(*schema, "schema", &structural);
  const auto compiled = apiserver::SchemaValidator::Compile(*schema);
  if (!compiled.ok() || line == std::string_view::npos) {
    return 0;
  }
  const auto object = kube::ParseJson(text.substr(line + 1));
  if (object.ok() && object->is_object()) {
    kube::FieldErrors errors;
    (*compiled)->Validate(*object, nullptr, &errors);
    (*compiled)->Validate(*object, &*object, &errors);
    (*compiled)->ValidateStatus(*object, nullptr, &errors);
  }
  return 0;
}
