#include "kube/kinds/defaults.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "kube/kinds/default_functions.h"
#include "kube/schema/builtin_schema.h"

namespace sublet::kube {
namespace {

using schema::Field;
using schema::Type;
using schema::ValueKind;

struct DefaultsRow {
  std::string_view type;  // OpenAPI name after "io.k8s."
  void (*function)(Json*);
};

// Outer types come before what they contain, because the walk does.
constexpr DefaultsRow kDefaults[] = {
    {"api.core.v1.Pod", defaults::Pod},
    {"api.core.v1.PodSpec", defaults::PodSpec},
    {"api.core.v1.Container", defaults::Container},
    {"api.core.v1.EphemeralContainer", defaults::Container},
    {"api.core.v1.Probe", defaults::Probe},
    {"api.core.v1.HTTPGetAction", defaults::HttpGetAction},
    {"api.core.v1.Volume", defaults::Volume},
    {"api.core.v1.SecretVolumeSource", defaults::DefaultMode},
    {"api.core.v1.ConfigMapVolumeSource", defaults::DefaultMode},
    {"api.core.v1.DownwardAPIVolumeSource", defaults::DefaultMode},
    {"api.core.v1.ProjectedVolumeSource", defaults::DefaultMode},
    {"api.core.v1.HostPathVolumeSource", defaults::HostPath},
    {"api.core.v1.ServiceAccountTokenProjection", defaults::ServiceAccountToken},
    {"api.core.v1.ObjectFieldSelector", defaults::ObjectFieldSelector},
    {"api.core.v1.Service", defaults::Service},
    {"api.core.v1.Secret", defaults::Secret},
    {"api.core.v1.Namespace", defaults::Namespace},
    {"api.core.v1.NodeSpec", defaults::NodeSpec},
    {"api.core.v1.NodeStatus", defaults::NodeStatus},
    {"api.core.v1.LimitRangeItem", defaults::LimitRangeItem},
    {"api.core.v1.ReplicationController", defaults::ReplicationController},
    {"api.core.v1.PersistentVolume", defaults::PersistentVolume},
    {"api.core.v1.PersistentVolumeClaim", defaults::PersistentVolumeClaim},
    {"api.core.v1.PersistentVolumeClaimSpec", defaults::PersistentVolumeClaimSpec},
    {"api.core.v1.EndpointPort", defaults::EndpointsPort},
    {"api.core.v1.ResourceList", defaults::ResourceList},
    {"api.apps.v1.Deployment", defaults::Deployment},
    {"api.apps.v1.DaemonSet", defaults::DaemonSet},
    {"api.apps.v1.StatefulSet", defaults::StatefulSet},
    {"api.apps.v1.ReplicaSet", defaults::ReplicaSet},
    {"api.batch.v1.Job", defaults::Job},
    {"api.batch.v1.CronJob", defaults::CronJob},
    {"api.batch.v1.PodFailurePolicyOnPodConditionsPattern", defaults::PodFailureCondition},
    {"api.autoscaling.v1.HorizontalPodAutoscaler", defaults::HorizontalPodAutoscalerV1},
    {"api.autoscaling.v2.HorizontalPodAutoscaler", defaults::HorizontalPodAutoscalerV2},
    {"api.networking.v1.NetworkPolicy", defaults::NetworkPolicy},
    {"api.networking.v1.NetworkPolicyPort", defaults::NetworkPolicyPort},
    {"api.networking.v1.IngressClass", defaults::IngressClass},
    {"api.rbac.v1.ClusterRoleBinding", defaults::RoleBinding},
    {"api.rbac.v1.RoleBinding", defaults::RoleBinding},
    {"api.rbac.v1.Subject", defaults::RbacSubject},
    {"api.storage.v1.StorageClass", defaults::StorageClass},
    {"api.storage.v1.CSIDriver", defaults::CsiDriver},
    {"api.admissionregistration.v1.ValidatingWebhook", defaults::Webhook},
    {"api.admissionregistration.v1.MutatingWebhook", defaults::MutatingWebhook},
    {"api.admissionregistration.v1.RuleWithOperations", defaults::AdmissionRule},
    {"api.admissionregistration.v1.NamedRuleWithOperations", defaults::AdmissionRule},
    {"api.admissionregistration.v1.ServiceReference", defaults::WebhookService},
    {"api.admissionregistration.v1.ValidatingAdmissionPolicySpec", defaults::FailurePolicy},
    {"api.admissionregistration.v1.MutatingAdmissionPolicySpec", defaults::FailurePolicy},
    {"api.admissionregistration.v1.MatchResources", defaults::MatchResources},
    {"api.scheduling.v1.PriorityClass", defaults::PriorityClass},
    {"api.discovery.v1.EndpointPort", defaults::EndpointSlicePort},
    {"api.resource.v1.ExactDeviceRequest", defaults::DeviceRequest},
    {"api.resource.v1.DeviceSubRequest", defaults::DeviceRequest},
    {"api.flowcontrol.v1.FlowSchemaSpec", defaults::FlowSchemaSpec},
    {"api.flowcontrol.v1.ExemptPriorityLevelConfiguration", defaults::ExemptLevel},
    {"api.flowcontrol.v1.LimitedPriorityLevelConfiguration", defaults::LimitedLevel},
    {"api.flowcontrol.v1.QueuingConfiguration", defaults::QueuingConfiguration},
    {"apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
     defaults::CustomResourceDefinition},
    {"apiextensions-apiserver.pkg.apis.apiextensions.v1.ServiceReference",
     defaults::WebhookService},
};

// A default that the schema itself names and that differs from what Go makes of an absent field.
bool HasOwnDefault(const Field& field) {
  const std::string_view text = field.default_text();
  if (text.empty() || text == "{}") {
    return false;
  }
  const bool zero = text == "\"\"" || text == "0" || text == "false";
  // These two are set by functions with conditions of their own.
  return (!zero || field.Has(schema::kPointer)) && field.name() != "replicas" &&
         field.name() != "minReadySeconds";
}

struct TypeInfo {
  void (*function)(Json*) = nullptr;
  std::vector<std::uint32_t> own;  // fields with a default of their own
  bool walk = false;               // something is to be done here or below
};

struct Plan {
  std::vector<TypeInfo> types;

  Plan() {
    const schema::Tables& tables = schema::kBuiltinTables;
    types.resize(tables.types.size());
    for (std::uint32_t i = 0; i < types.size(); ++i) {
      const Type type(&tables, i);
      std::string_view name = type.name();
      name.remove_prefix(name.starts_with("io.k8s.") ? 7 : 0);
      for (const DefaultsRow& row : kDefaults) {
        if (row.type == name) {
          types[i].function = row.function;
        }
      }
      for (std::uint32_t f = 0; type.kind() == ValueKind::kStruct && f < type.field_count(); ++f) {
        if (HasOwnDefault(type.field(f))) {
          types[i].own.push_back(f);
        }
      }
      types[i].walk = types[i].function != nullptr || !types[i].own.empty();
    }
    while (Spread(tables)) {
    }
  }

  // One round of "a type is walked when a member is"; true when something changed.
  bool Spread(const schema::Tables& tables) {
    bool changed = false;
    for (std::uint32_t i = 0; i < types.size(); ++i) {
      const Type type(&tables, i);
      const auto below = [&](Type member) { return member && types[member.index()].walk; };
      bool walk = types[i].walk;
      if (type.kind() == ValueKind::kList || type.kind() == ValueKind::kMap) {
        walk |= below(type.element());
      }
      for (std::size_t f = 0; type.kind() == ValueKind::kStruct && f < type.field_count(); ++f) {
        walk |= below(type.field(f).type());
      }
      changed |= walk != types[i].walk;
      types[i].walk = walk;
    }
    return changed;
  }
};

void Walk(const Plan& plan, Type type, Json* value) {
  const TypeInfo& info = plan.types[type.index()];
  if (!info.walk) {
    return;
  }
  if (info.function != nullptr && value->is_object()) {
    info.function(value);
  }
  if (type.kind() == ValueKind::kList && value->is_array()) {
    for (Json& item : *value) {
      Walk(plan, type.element(), &item);
    }
  } else if (type.kind() == ValueKind::kMap && value->is_object()) {
    for (auto& [key, item] : value->get_ref<Json::object_t&>()) {
      Walk(plan, type.element(), &item);
    }
  } else if (type.kind() == ValueKind::kStruct && value->is_object()) {
    for (const std::uint32_t f : info.own) {
      const Field field = type.field(f);
      Json& member = (*value)[std::string(field.name())];
      if (member.is_null() || (!field.Has(schema::kPointer) && member == "")) {
        member = *ParseJson(field.default_text());
      }
    }
    for (auto& [key, member] : value->get_ref<Json::object_t&>()) {
      if (member.is_structured()) {
        if (const Field field = type.FindField(key)) {
          Walk(plan, field.type(), &member);
        }
      }
    }
  }
}

}  // namespace

void DefaultBuiltin(Type type, Json* object) {
  static const Plan kPlan;
  if (type && type.tables() == &schema::kBuiltinTables) {
    Walk(kPlan, type, object);
  }
}

}  // namespace sublet::kube
