// Exec credential plugins: the program a kubeconfig names to get a token or a client certificate
// (aws, gke-gcloud-auth-plugin, kubelogin ...).
// Source: client.authentication.k8s.io/v1 ExecCredential.
#pragma once

#include <functional>

#include "client/http_transport.h"
#include "kube/json.h"

namespace sublet::client {

// A function that runs the plugin of `exec` (users[].user.exec) and returns what it printed; it
// blocks for at most a minute, reads at most 1 MiB. `cluster` is passed on when provideClusterInfo
// asks for it. Errors of the function: Unauthorized-like texts that carry the plugin's installHint.
// Errors: BadRequest (no command, an apiVersion this code does not speak).
Result<std::function<Result<Credential>()>> MakeExecCredential(const kube::Json& exec,
                                                               const kube::Json& cluster);

// Reads what a plugin printed. Errors: BadRequest.
Result<Credential> ParseExecCredential(std::string_view text);

}  // namespace sublet::client
