// gotypes writes kube/kinds/go_types.cc: in which order and by which names Kubernetes' own (internal)
// structures print as JSON, which is how its messages show them. A developer runs it when the
// Kubernetes version moves, and changes it, not what it writes:
//
//	cd e2e/upstream && go run ./gotypes |
//	  clang-format-14 --assume-filename=../../kube/kinds/go_types.cc > /tmp/go_types.cc
//	mv /tmp/go_types.cc ../../kube/kinds/go_types.cc
package main

import (
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/kubernetes/pkg/apis/batch"
	"k8s.io/kubernetes/pkg/apis/certificates"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/networking"
	"k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/kubernetes/pkg/apis/storage"
)

// What messages show, and the published type that gives the names in requests.
var roots = [][2]any{
	{core.PodTemplateSpec{}, corev1.PodTemplateSpec{}},
	{core.PodIP{}, corev1.PodIP{}},
	{core.HostIP{}, corev1.HostIP{}},
	{core.PersistentVolumeClaim{}, corev1.PersistentVolumeClaim{}},
	{core.PersistentVolumeClaimSpec{}, corev1.PersistentVolumeClaimSpec{}},
	{core.PersistentVolumeSource{}, corev1.PersistentVolumeSource{}},
	{core.PersistentVolumeSpec{}, corev1.PersistentVolumeSpec{}},
	{core.ScopeSelector{}, corev1.ScopeSelector{}},
	{core.Taint{}, corev1.Taint{}},
	{core.NodeAddress{}, corev1.NodeAddress{}},
	{core.NodeSpec{}, corev1.NodeSpec{}},
	{batch.JobSpec{}, batchv1.JobSpec{}},
	{batch.UncountedTerminatedPods{}, batchv1.UncountedTerminatedPods{}},
	{certificates.CertificateSigningRequestCondition{}, certificatesv1.CertificateSigningRequestCondition{}},
	{networking.IngressSpec{}, networkingv1.IngressSpec{}},
	{networking.NetworkPolicySpec{}, networkingv1.NetworkPolicySpec{}},
	{networking.IPAddressSpec{}, networkingv1.IPAddressSpec{}},
	{resource.ResourceClaimSpec{}, resourcev1.ResourceClaimSpec{}},
	{resource.ResourceClaimStatus{}, resourcev1.ResourceClaimStatus{}},
	{resource.ResourceClaimTemplateSpec{}, resourcev1.ResourceClaimTemplateSpec{}},
	{resource.ResourceSliceSpec{}, resourcev1.ResourceSliceSpec{}},
	{resource.DeviceClassSpec{}, resourcev1.DeviceClassSpec{}},
	{storage.VolumeAttachmentSpec{}, storagev1.VolumeAttachmentSpec{}},
	{storage.CSINodeDriver{}, storagev1.CSINodeDriver{}},
}

// Fields that the published type keeps elsewhere; see go_diff.cc.
var moved = map[string]string{
	"PodSecurityContext.HostNetwork":           "hostNetwork",
	"PodSecurityContext.HostPID":               "hostPID",
	"PodSecurityContext.HostIPC":               "hostIPC",
	"PodSecurityContext.ShareProcessNamespace": "shareProcessNamespace",
	"PodSecurityContext.HostUsers":             "hostUsers",
}

var seen = map[string]reflect.Type{}
var lines = map[string][]string{}

func jsonName(field reflect.StructField) string {
	return strings.Split(field.Tag.Get("json"), ",")[0]
}

// The published field of the same Go name, through inlined structures.
func published(t reflect.Type, name string) (reflect.StructField, bool) {
	if t == nil {
		return reflect.StructField{}, false
	}
	return t.FieldByName(name)
}

func bare(t reflect.Type) reflect.Type {
	for t != nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map) {
		t = t.Elem()
	}
	return t
}

func typeText(t, other reflect.Type) string {
	switch t.String() {
	case "resource.Quantity":
		return "q"
	case "v1.Time", "v1.MicroTime":
		return "t"
	case "intstr.IntOrString":
		return "x"
	case "runtime.RawExtension", "v1.FieldsV1":
		return "j"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return "*" + typeText(t.Elem(), other)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "*s"
		}
		return "[" + typeText(t.Elem(), other)
	case reflect.Map:
		return "{" + typeText(t.Elem(), other)
	case reflect.String:
		return "s"
	case reflect.Bool:
		return "b"
	case reflect.Struct:
		walk(t, bare(other))
		return t.Name()
	default:
		return "i"
	}
}

// The fields of `t` and of what it has inline; `under` is where the published type keeps those.
func fields(t, other reflect.Type, under string, out *[]string) {
	for i := range t.NumField() {
		field := t.Field(i)
		tag := field.Tag.Get("json")
		if tag == "-" {
			continue
		}
		if field.Anonymous && jsonName(field) == "" {
			inner, at := other, under
			if found, ok := published(other, field.Name); ok && found.Anonymous {
				inner = found.Type
				if name := jsonName(found); name != "" {
					at += name + "/"
				}
			}
			fields(field.Type, inner, at, out)
			continue
		}
		shown := jsonName(field)
		if shown == "" {
			shown = field.Name
		}
		sent := shown
		var theirs reflect.Type
		if found, ok := published(other, field.Name); ok {
			sent, theirs = jsonName(found), found.Type
		} else if name, ok := moved[t.Name()+"."+field.Name]; ok {
			sent = name
		} else if other != t {
			fmt.Fprintln(os.Stderr, "not in requests:", t, field.Name)
		}
		flags := ""
		if strings.Contains(tag, ",omitempty") {
			flags += "o"
		}
		if strings.Contains(tag, ",omitzero") {
			flags += "z"
		}
		*out = append(*out, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", shown, under+sent, typeText(field.Type, theirs), flags)))
	}
}

func walk(t, other reflect.Type) {
	if before, ok := seen[t.Name()]; ok {
		if before != t {
			panic("two types are called " + t.String() + " and " + before.String())
		}
		return
	}
	seen[t.Name()] = t
	var out []string
	fields(t, other, "", &out)
	lines[t.Name()] = out
}

func main() {
	for _, root := range roots {
		walk(reflect.TypeOf(root[0]), reflect.TypeOf(root[1]))
	}
	var names []string
	for name := range lines {
		names = append(names, name)
	}
	sort.Strings(names)
	fmt.Print("// Written by e2e/upstream/gotypes; not by hand. See go_types.h.\n#include \"kube/kinds/go_types.h\"\n\n" +
		"namespace sublet::kube {\n\nconst std::string_view kGoTypes =\n")
	for _, name := range names {
		fmt.Printf("    \"\\n@%s\\n\"\n", name)
		for _, line := range lines[name] {
			fmt.Printf("    \"%s\\n\"\n", line)
		}
	}
	fmt.Print("    \"\\n\";\n\n}  // namespace sublet::kube\n")
}
