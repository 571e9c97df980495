// HookGate: runs the OCI hooks of CDI devices for a container. The Docker-compatible API cannot
// pass hooks on, so the container starts behind a small static program (gate.c) that waits on a
// FIFO; the hooks run with the real process id and namespaces, then the container's own command
// takes over. prestart, createRuntime and createContainer run on the machine, in this order;
// startContainer runs inside the container; poststart on the machine after the command was let go.
// Differs: poststop hooks are not run: the engine removes what the others made inside the
// container. Source: OCI runtime specification, hooks; CDI specification, containerEdits.hooks.
// Threads: one.
#pragma once

#include <string>

#include "base/result.h"
#include "node/engine/engine.h"
#include "node/pod/cdi.h"

namespace sublet::node {

class HookGate {
 public:
  // Without hooks nothing is changed. Otherwise puts the gate before the command of `spec`, with a
  // folder of its own below `root`.
  HookGate(const std::string& root, const CdiEdits& edits, ContainerSpec* spec);
  ~HookGate();  // removes the folder's FIFO when the container was never let go
  HookGate(const HookGate&) = delete;
  HookGate& operator=(const HookGate&) = delete;

  // Runs the hooks for the started container and lets its command go. Errors: InternalError (a hook
  // failed; the container must be killed).
  Result<void> Run(ContainerEngine& engine, const ContainerState& state);

 private:
  Result<void> RunOne(const CdiHook& hook, const ContainerState& state, std::string_view status);
  Result<void> Open();

  std::vector<CdiHook> hooks_;
  std::string folder_;
};

}  // namespace sublet::node
