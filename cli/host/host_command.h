// `sublet host up|down|status|logs|install`: the embedded host, a one-machine Kubernetes on the
// user's container engine.
#pragma once

namespace sublet::cli {
int RunHost(int argc, char** argv);
}  // namespace sublet::cli
