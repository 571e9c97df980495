// CDI: device specifications that other programs (gpud, vendors) leave in /etc/cdi and
// /var/run/cdi, and what a device named by a pod means for a container: mounts, environment, device
// nodes, hooks. Pods name devices in annotations `cdi.k8s.io/<anything>:
// vendor.com/class=device[,...]`. Source: Container Device Interface specification 0.8. Threads:
// any; files are read each time, since devices come and go.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "kube/json.h"
#include "node/engine/engine.h"

namespace sublet::node {

struct CdiHook {
  std::string
      hook_name;  // prestart, createRuntime, createContainer, startContainer, poststart, poststop
  std::string path;
  std::vector<std::string> args;
  std::vector<std::string> env;
  int timeout_seconds = 0;  // 0 = none
};

struct CdiEdits {
  std::vector<std::string> env;  // NAME=value
  std::vector<EngineMount> mounts;
  std::vector<EngineDevice> devices;
  std::vector<CdiHook> hooks;
  std::vector<std::string> groups;
};

// The devices a pod's annotations name, in order of annotation key. Errors: BadRequest (not a
// qualified device name).
Result<std::vector<std::string>> CdiDevicesOf(const kube::Json* annotations);

// The edits of `devices` ("vendor.com/class=name") by the specifications in `folders`; later
// folders win. Errors: NotFound `unresolvable CDI devices x`, BadRequest (a specification that
// names the device is malformed).
Result<CdiEdits> ResolveCdi(const std::vector<std::string>& folders,
                            const std::vector<std::string>& devices);

// One specification's text (JSON or YAML) as a tree with kind and devices checked. Errors:
// BadRequest.
Result<kube::Json> ParseCdiSpec(std::string_view text, bool is_yaml);

// Puts the edits into a container's specification.
void ApplyCdi(const CdiEdits& edits, ContainerSpec* spec);

}  // namespace sublet::node
