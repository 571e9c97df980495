// Loads the node's rules into the kernel with nft, in one transaction, and takes them out again.
// Threads: one at a time; each call runs a program to its end (20 ms, more for thousands of rules).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sublet::node {

// Errors: NotFound (nft is not installed: names the package), InternalError (nft's own message).
Result<void> LoadRules(std::string_view script);
// Removes the table; absent is no error.
Result<void> RemoveRules(const std::string& table);

// Docker sets the policy of FORWARD to DROP; our links are let through there. Does nothing where
// the policy is ACCEPT or iptables is not installed. `wanted` false takes the rules out.
Result<void> PassForwardPolicy(const std::string& veth_prefix, bool wanted);

// Runs a program with `input` on its standard input. Returns its exit status and output (both
// streams). Errors: NotFound (no such program), InternalError.
struct ProgramOutput {
  int status = 0;
  std::string text;
};
Result<ProgramOutput> RunTool(const std::vector<std::string>& argv, std::string_view input);

}  // namespace sublet::node
