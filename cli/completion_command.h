// `sublet completion bash|zsh|fish`.
#pragma once

namespace sublet::cli {
int RunCompletion(int argc, char** argv);
}  // namespace sublet::cli
