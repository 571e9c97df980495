// exec and attach over the Docker-compatible API. Used by docker_engine.cc. Threads: any.
#pragma once

#include <memory>
#include <string>

#include "node/engine/engine.h"
#include "node/engine/unix_http.h"

namespace sublet::node {

// `http` must outlive the session. Errors: as ContainerEngine.
Result<std::unique_ptr<StreamSession>> StartExec(const UnixHttp& http, const std::string& id,
                                                 const ExecSpec& spec);
Result<std::unique_ptr<StreamSession>> StartAttach(const UnixHttp& http, const std::string& id,
                                                   const AttachSpec& spec);

}  // namespace sublet::node
