// The JSON of the Docker-compatible API as values: pure functions between ContainerSpec and
// friends and the documents on the wire. Used by docker_engine.cc. Threads: any.
// Source: Docker Engine API v1.41; Podman 4.3 compat API.
#pragma once

#include <string>

#include "kube/json.h"
#include "node/engine/engine.h"

namespace sublet::node {

// The body of POST /containers/create.
kube::Json CreateBody(const ContainerSpec& spec, EngineKind kind);
// The body of POST /libpod/containers/create, for what Podman's Docker-compatible form cannot say.
kube::Json LibpodCreateBody(const ContainerSpec& spec);
// The answer of GET /containers/ID/json.
ContainerState ParseContainer(const kube::Json& inspect);
// The answer of GET /images/NAME/json, or one item of GET /images/json (without its config).
ImageInfo ParseImage(const kube::Json& inspect);
// The header `Server` of GET /_ping: "Libpod/4.3.1 (linux)", "Docker/20.10.24 (linux)".
EngineInfo ParseEngineInfo(std::string_view server);
// RFC 3339 as the engines write it (nanoseconds, Z or an offset); the epoch when unset or odd.
WallTime ParseEngineTime(std::string_view text);
// The bytes of X-Registry-Auth.
std::string EncodeRegistryAuth(const RegistryAuth& auth);
// Percent-encodes everything but unreserved characters.
std::string UrlEncode(std::string_view text);

}  // namespace sublet::node
