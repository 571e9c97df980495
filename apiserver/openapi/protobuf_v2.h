// OpenAPI v2 as the protobuf document that old kubectl validates with (gnostic's Document): the
// same pieces as the JSON form, each converted on its own. Threads: a writer belongs to one thread.
// Source: github.com/google/gnostic-models openapiv2/OpenAPIv2.proto (field numbers).
#pragma once

#include <string>
#include <string_view>

#include "apiserver/openapi/schema_text.h"

namespace sublet::apiserver {

class ProtobufV2Writer {
 public:
  // Both take the pieces of EmitOpenApi with SpecVersion::kV2.
  SpecSink PathSink();
  SpecSink DefinitionSink();
  // The whole Document.
  std::string Finish(std::string_view version) const;

 private:
  std::string paths_;
  std::string definitions_;
};

}  // namespace sublet::apiserver
