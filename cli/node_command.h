// `sublet node`: the node agent, or simulated nodes.
#pragma once

namespace sublet::cli {
int RunNodeCommand(int argc, char** argv);
}  // namespace sublet::cli
