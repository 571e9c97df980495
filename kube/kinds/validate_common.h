// Validation shared by many kinds: names, labels, selectors, resources, ports, times. Texts are
// Kubernetes'. Threads: any. Source: k8s.io/kubernetes pkg/apis/core/validation.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "kube/field_error.h"
#include "kube/json.h"
#include "kube/validation_names.h"

namespace sublet::kube::validate {

using Path = FieldPath;
inline const Path kSpec("spec");
inline constexpr std::string_view kNotNegative = "must be greater than or equal to 0";
inline constexpr std::string_view kPositive = "must be greater than 0";
inline constexpr std::string_view kImmutable = "field is immutable";

// A member, or a shared null when absent: for reading.
const Json& Get(const Json& object, std::string_view key);
// The text of a member, "" when absent.
std::string Str(const Json& object, std::string_view key);
bool Has(const Json& object, std::string_view key);
// The items of a list member; an empty list when absent.
const Json::array_t& Items(const Json& object, std::string_view key);

// Reports each problem of `rule(value)` at `path`.
void Check(const Path& path, const std::string& value, Problems (*rule)(std::string_view),
           FieldErrors* errors);
// The same, Required when empty.
void CheckRequired(const Path& path, const std::string& value, Problems (*rule)(std::string_view),
                   FieldErrors* errors);
void NotNegative(const Path& path, const Json& value, FieldErrors* errors);
void NotNegative(const Json& object, std::string_view key, const Path& parent, FieldErrors* errors);
// Unsupported unless `value` is one of `allowed`; Required when empty and `required`.
void OneOf(const Path& path, const std::string& value,
           std::initializer_list<std::string_view> allowed, bool required, FieldErrors* errors);
// A member that may be absent but is one of `allowed` when it is there, so not empty.
void Choice(const Path& parent, const Json& object, std::string_view key,
            std::initializer_list<std::string_view> allowed, FieldErrors* errors);
// Of a volume driver or a device driver, in any case.
void CsiDriverName(const Path& path, const std::string& name, FieldErrors* errors);
// A label selector as Kubernetes shows it: matchLabels first.
std::string ShownSelector(const Json& selector);
// "field is immutable" when the member differs between two objects.
void Immutable(const Json& object, const Json& old, std::string_view key, const Path& parent,
               FieldErrors* errors);
bool SameMember(const Json& object, const Json& old, std::string_view key);

// An object of labels; annotations have keys in any case.
void Labels(const Path& path, const Json& labels, FieldErrors* errors);
void LabelSelector(const Path& path, const Json& selector, FieldErrors* errors);
bool IsEmptySelector(const Json& selector);

// limits and requests of a container, a pod, an overhead; `rule` says which names may stand there.
void ContainerResourceName(const Path& path, const std::string& name, FieldErrors* errors);
void Resources(const Path& path, const Json& resources, FieldErrors* errors,
               void (*rule)(const Path&, const std::string&,
                            FieldErrors*) = &ContainerResourceName);
void QuantityValue(const Path& path, const std::string& name, const std::string& value,
                   FieldErrors* errors);
bool IsExtendedResource(std::string_view name);
bool IsStandardResource(std::string_view name);
bool IsStandardQuotaResource(std::string_view name);

// 1..65535 or a port name.
void PortNumberOrName(const Path& path, const Json& port, FieldErrors* errors);
void NoBacksteps(const Path& path, const std::string& value, FieldErrors* errors);
// A relative path without "..".
void DescendingPath(const Path& path, const std::string& value, FieldErrors* errors);
void LocalPath(const Path& path, const std::string& value, FieldErrors* errors);
// An int-or-string: not negative, a percentage, at most 100%; and as a share of 100 (0 when
// unreadable).
void NumberOrPercent(const Path& path, const Json& value, FieldErrors* errors);
void AtMostAll(const Path& path, const Json& value, FieldErrors* errors);
std::int64_t ScaledOf100(const Json& value);
// spec.template of a set whose pods never end.
void RestartAlways(const Json& spec, std::string_view set, FieldErrors* errors);
// An address of a field that has been there since before strictness.
void Ip(const Path& path, const std::string& value, FieldErrors* errors);
// An address that others may be sent to: not unspecified, loopback, link-local or multicast.
void NoSpecialIp(const Path& path, const std::string& ip, FieldErrors* errors);
void Cidr(const Path& path, const std::string& value, FieldErrors* errors);

// In specs of workloads and pods (validate_pod.cc).
void PodSpec(const Path& path, const Json& spec, const std::string& pod_name, bool is_pod,
             FieldErrors* errors);
// metadata.labels, annotations and spec of a pod template.
void PodTemplate(const Path& path, const Json& pod_template, FieldErrors* errors);
// spec.volumes of a pod, or the one source of an ephemeral one (validate_volume.cc).
std::vector<std::string> Volumes(const Path& path, const Json& spec, const std::string& pod_name,
                                 FieldErrors* errors);
// A source that pods and persistent volumes share (validate_old_volumes.cc); others are left alone.
void SharedSource(const Path& parent, std::string_view kind, const Json& source,
                  FieldErrors* errors);
inline constexpr std::string_view kPortalTooLong =
    "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if "
    "iscsi.initiatorName is specified.";
void HostPathSource(const Path& path, const Json& source, FieldErrors* errors);
// metadata of a template that makes other objects: labels and annotations, nothing else.
void TemplateMetadata(const Path& path, const Json& metadata, FieldErrors* errors);
void Annotations(const Path& path, const Json& annotations, FieldErrors* errors);
void Tolerations(const Path& path, const Json& spec, FieldErrors* errors);
// Of a claim and, in part, of a volume (validate_volume_claim.cc).
void ClaimSpec(const Path& path, const Json& spec, FieldErrors* errors);
void AccessModes(const Path& path, const Json& spec, FieldErrors* errors);
void VolumeMode(const Path& path, const Json& spec, FieldErrors* errors);
// Containers of any kind (validate_container.cc).
void Containers(const Path& spec_path, const Json& spec, const std::vector<std::string>& volumes,
                FieldErrors* errors);
void FieldRef(const Path& path, const Json& reference,
              std::initializer_list<std::string_view> supported, FieldErrors* errors);
void ResourceFieldRef(const Path& path, const Json& reference, bool volume, FieldErrors* errors);
void NodeSelector(const Path& path, const Json& selector, FieldErrors* errors);
void SeccompProfile(const Path& path, const Json& profile, FieldErrors* errors);
// Of a container or of the pod (validate_pod_security.cc).
void AppArmorProfile(const Path& path, const Json& profile, FieldErrors* errors);
void WindowsOptions(const Path& path, const Json& options, FieldErrors* errors);
// All containers of a pod run as processes of a Windows host, or none does.
void HostProcess(const Path& spec_path, const Json& spec, FieldErrors* errors);
// spec.resourceClaims, a container's resources.claims (validate_pod_claims.cc).
void PodClaims(const Path& path, const Json& spec, FieldErrors* errors);
void ContainerClaims(const Path& path, const Json& container, const Json& spec,
                     FieldErrors* errors);
// A variable that is read from a file, and the volumes such files are in.
void FileKeyRef(const Path& path, const Json& reference, FieldErrors* errors);
void FileKeyVolumes(const Path& spec_path, const Json& spec, FieldErrors* errors);

// owner.conditions where each has a reason and a time (validate_status.cc).
void Conditions(const Path& path, const Json& owner, FieldErrors* errors);
// A rule of a webhook or a policy (validate_admission.cc), and conditions in CEL
// (validate_policies.cc).
void AdmissionRule(const Path& at, const Json& rule, FieldErrors* errors);
void MatchConditions(const Path& path, const Json& owner, FieldErrors* errors);

}  // namespace sublet::kube::validate
