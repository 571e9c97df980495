// The tenant verbs. Each one's flags and texts are in its own file.
#pragma once

#include <string>

#include "cli/host_session.h"
#include "cli/tenant/tenants.h"

namespace sublet::cli {

int RunCreate(int argc, char** argv);
int RunConnect(int argc, char** argv);
int RunDisconnect(int argc, char** argv);
int RunList(int argc, char** argv);
int RunDescribe(int argc, char** argv);
int RunDelete(int argc, char** argv);
int RunPause(int argc, char** argv);
int RunResume(int argc, char** argv);
int RunLogs(int argc, char** argv);
// Hidden: prints an ExecCredential for kubectl and starts the local endpoint when it is not there.
int RunCredential(int argc, char** argv);
// Hidden: the local endpoint itself.
int RunEndpoint(int argc, char** argv);

// Starts the local endpoint of a tenant that is not ready yet, so that ConnectTo finds it running.
void BeginEndpoint(const HostSession& host, const TenantInfo& tenant,
                   const std::string& context_name);

// What create and connect share: the tenant is ready, its context is written and made current.
// `context_name` "" = the usual one. Returns the name of the context.
Result<std::string> ConnectTo(const HostSession& host, const TenantInfo& tenant,
                              const TenantAccess& access, std::string context_name);

}  // namespace sublet::cli
