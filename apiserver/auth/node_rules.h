// What every node's kubelet may do, and which questions about single objects need its pods to be
// looked at. Threads: any; pure.
// Source: k8s.io/kubernetes plugin/pkg/auth/authorizer/node, bootstrappolicy.NodeRules.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "apiserver/auth/authorizer.h"

namespace sublet::apiserver {

std::vector<CompiledRule> CompileNodeRules();
// The answer to a question about an object that only the pods of the node open to it: true or
// false; nullopt when the question is none of these.
std::optional<bool> AskNodeGraph(const Attributes& attributes, std::string_view node,
                                 const NodeGraph* graph);

}  // namespace sublet::apiserver
