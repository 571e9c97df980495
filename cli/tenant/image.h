// The image of the tenant pod: this executable, its libc closure, CA certificates and busybox. On
// the embedded host it is made from the running binary and loaded into the engine; no registry.
// Threads: one.
#pragma once

#include <string>

#include "cli/host_session.h"

namespace sublet::cli {

// "localhost/sublet:VERSION-HASH" of the running binary: another binary is another image.
std::string TenantImageName();

// The image to use on `host`: loaded when the host is the embedded one. Errors: BadRequest on
// another host (an --image is needed there), whatever keeps the engine from loading it.
Result<std::string> EnsureTenantImage(const HostSession& host);

// The same on the embedded host's engine, which must serve. Errors: NotFound (no host is up), what
// keeps the engine from loading it.
Result<std::string> EnsureEmbeddedImage();

// `sublet image save FILE`: the archive for `docker load`, to be pushed to a registry.
int RunImage(int argc, char** argv);

// OpenHost, and where there is no context at all the embedded host is offered and started.
Result<HostSession> OpenHostOrOffer(const HostFlags& flags);

}  // namespace sublet::cli
