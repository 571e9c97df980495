// Decide: what to do next for one pod. Pure: specification + what is known + clock -> actions and
// the next time the answer can change by itself. The worker carries the actions out and asks again
// whenever something happened, so an answer needs to hold only now.
// Source: kubelet kuberuntime computePodActions, killContainer, sidecar termination ordering,
// container restart back-off (10 s doubling to 5 min, reset after 10 min).
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "node/pod/plan.h"
#include "node/pod/state.h"

namespace sublet::node {

struct Action {
  enum class Kind : std::uint8_t {
    kSetUpVolumes,
    kCreateSandbox,
    kStopSandbox,
    kStartContainer,  // pull, create, start, postStart hook
    kStopContainer,   // preStop hook, stop signal, kill after `grace`
    kGiveVerdict,     // the pod ends for the reason in `reason` and `message`
    kTearDown,        // nothing runs any more: volumes, links and the like go
  };
  Kind kind = Kind::kSetUpVolumes;
  std::string container;
  std::string reason;
  std::string message;  // text of the Event
  seconds grace{0};
  bool operator==(const Action&) const = default;
};

struct Decision {
  std::vector<Action> actions;
  std::optional<MonotonicTime> again_at;
};

struct Now {
  WallTime wall{};
  MonotonicTime monotonic{};
};

Decision Decide(const PodPlan& plan, const PodRecord& record, const Now& now);

// Whether an ended run is to be followed by another one.
bool ShouldRestart(const ContainerPlan& container, const Incarnation& ended);
// When the container whose current run has ended may start again.
WallTime RestartAt(const ContainerRecord& record);
// The back-off that goes with a start at `now` after the current run ended.
seconds NextCrashBackoff(const ContainerRecord& record, WallTime now);
// Whether the pod's containers have all come to their end, so that nothing starts any more.
bool HasFinished(const PodPlan& plan, const PodRecord& record);
// The pod is to end: deleted, gone from the API, or by verdict.
bool IsTerminating(const PodPlan& plan, const PodRecord& record);
// Whether the containers of the pod may still be running or about to.
bool IsQuiet(const PodPlan& plan, const PodRecord& record);
// All init containers have done their work in this sandbox.
bool IsInitialized(const PodPlan& plan, const PodRecord& record);

inline constexpr seconds kCrashBackoffFirst{10};
inline constexpr seconds kCrashBackoffMost{300};

}  // namespace sublet::node
