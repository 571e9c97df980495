// Kubernetes' protobuf bodies to JSON values and back, driven by the field numbers in the schema
// tables. kubectl 1.32+, helm and every Go client send built-in kinds this way.
// Threads: any. Source: k8s.io/apimachinery runtime/serializer/protobuf and the .proto files.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "kube/json.h"
#include "kube/names.h"
#include "kube/schema/schema.h"

namespace sublet::kube {

// True when `body` starts with the four bytes of the envelope.
bool IsProtobuf(std::string_view body);

// One object with apiVersion and kind from its envelope. Follow with NormalizeTyped, as for JSON.
// Errors: BadRequest (no envelope, an unknown kind, malformed or too deep bytes).
Result<Json> DecodeProtobuf(std::string_view body);
// The type that the envelope names, without looking at the object. Errors: BadRequest.
Result<GroupVersionKind> ProtobufKind(std::string_view body);

// The object in its envelope. `type` is its built-in type; members that the type does not know are
// left out. Values must be normalised (kube/typed.h).
std::string EncodeProtobuf(schema::Type type, const Json& object);

// Messages without envelope; the pieces of the above.
Result<Json> DecodeMessage(schema::Type type, std::string_view bytes);
std::string EncodeMessage(schema::Type type, const Json& object);

}  // namespace sublet::kube
