// `sublet gpud` (a role) and `sublet gpu list|top`.
#pragma once

namespace sublet::cli {
int RunGpudCommand(int argc, char** argv);
int RunGpu(int argc, char** argv);
}  // namespace sublet::cli
