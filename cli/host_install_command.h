// `sublet host install`: what Sublet needs once on a host that is not the embedded one.
#pragma once

namespace sublet::cli {
int RunHostInstall(int argc, char** argv);
}  // namespace sublet::cli
