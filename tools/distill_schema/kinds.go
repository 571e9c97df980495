package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

type kindRow struct {
	group, version, kind string
	typeIndex            int
}

// The GA groups in the order in which discovery lists them.
var groups = []struct {
	version schema.GroupVersion
	add     func(*runtime.Scheme) error
}{
	{corev1.SchemeGroupVersion, corev1.AddToScheme},
	{apiregistrationv1.SchemeGroupVersion, apiregistrationv1.AddToScheme},
	{appsv1.SchemeGroupVersion, appsv1.AddToScheme},
	{eventsv1.SchemeGroupVersion, eventsv1.AddToScheme},
	{authenticationv1.SchemeGroupVersion, authenticationv1.AddToScheme},
	{authorizationv1.SchemeGroupVersion, authorizationv1.AddToScheme},
	{autoscalingv2.SchemeGroupVersion, autoscalingv2.AddToScheme},
	{autoscalingv1.SchemeGroupVersion, autoscalingv1.AddToScheme},
	{batchv1.SchemeGroupVersion, batchv1.AddToScheme},
	{certificatesv1.SchemeGroupVersion, certificatesv1.AddToScheme},
	{networkingv1.SchemeGroupVersion, networkingv1.AddToScheme},
	{policyv1.SchemeGroupVersion, policyv1.AddToScheme},
	{rbacv1.SchemeGroupVersion, rbacv1.AddToScheme},
	{storagev1.SchemeGroupVersion, storagev1.AddToScheme},
	{admissionregistrationv1.SchemeGroupVersion, admissionregistrationv1.AddToScheme},
	{apiextensionsv1.SchemeGroupVersion, apiextensionsv1.AddToScheme},
	{schedulingv1.SchemeGroupVersion, schedulingv1.AddToScheme},
	{coordinationv1.SchemeGroupVersion, coordinationv1.AddToScheme},
	{nodev1.SchemeGroupVersion, nodev1.AddToScheme},
	{discoveryv1.SchemeGroupVersion, discoveryv1.AddToScheme},
	{resourcev1.SchemeGroupVersion, resourcev1.AddToScheme},
	{flowcontrolv1.SchemeGroupVersion, flowcontrolv1.AddToScheme},
}

// collect walks every kind of the GA groups; kinds that are only options of requests are left to
// the shared meta types at the end.
func (g *generator) collect() []kindRow {
	var rows []kindRow
	for _, group := range groups {
		scheme := runtime.NewScheme()
		check(group.add(scheme))
		known := scheme.KnownTypes(group.version)
		names := make([]string, 0, len(known))
		for name := range known {
			names = append(names, name)
		}
		sort.Strings(names)
		for _, name := range names {
			t := known[name]
			if strings.HasPrefix(t.PkgPath(), "k8s.io/apimachinery/pkg/apis/meta") && name != "Status" {
				continue // options and watch events: listed once below
			}
			rows = append(rows, kindRow{group.version.Group, group.version.Version, name, g.typeOf(t, nil)})
			g.types[rows[len(rows)-1].typeIndex].flags |= tRootObject
		}
	}
	shared := []any{
		metav1.CreateOptions{}, metav1.DeleteOptions{}, metav1.GetOptions{}, metav1.ListOptions{},
		metav1.PatchOptions{}, metav1.UpdateOptions{}, metav1.WatchEvent{}, metav1.APIGroup{},
		metav1.APIGroupList{}, metav1.APIResourceList{}, metav1.APIVersions{},
		metav1.PartialObjectMetadata{}, metav1.PartialObjectMetadataList{}, metav1.Table{}, metav1.List{},
	}
	for _, one := range shared {
		t := reflect.TypeOf(one)
		rows = append(rows, kindRow{"meta.k8s.io", "v1", t.Name(), g.typeOf(t, nil)})
	}
	rows = append(rows, kindRow{"meta.k8s.io", "v1", "ObjectMeta", g.typeOf(reflect.TypeOf(metav1.ObjectMeta{}), nil)})
	rows = append(rows, kindRow{"meta.k8s.io", "v1", "ListMeta", g.typeOf(reflect.TypeOf(metav1.ListMeta{}), nil)})
	admission := reflect.TypeOf(admissionv1.AdmissionReview{})
	rows = append(rows, kindRow{"admission.k8s.io", "v1", "AdmissionReview", g.typeOf(admission, nil)})
	conversion := reflect.TypeOf(apiextensionsv1.ConversionReview{})
	rows = append(rows, kindRow{"apiextensions.k8s.io", "v1", "ConversionReview", g.typeOf(conversion, nil)})
	return dedupe(rows)
}

func dedupe(rows []kindRow) []kindRow {
	seen := map[string]bool{}
	var out []kindRow
	for _, row := range rows {
		key := row.group + "/" + row.version + "/" + row.kind
		if !seen[key] {
			seen[key] = true
			out = append(out, row)
		}
	}
	return out
}

type resourceRow struct {
	GroupOf, VersionOf string
	Name               string   `json:"name"`
	SingularName       string   `json:"singularName"`
	Namespaced         bool     `json:"namespaced"`
	Kind               string   `json:"kind"`
	Group              string   `json:"group"`
	Version            string   `json:"version"`
	Verbs              []string `json:"verbs"`
	ShortNames         []string `json:"shortNames"`
	Categories         []string `json:"categories"`
	StorageVersionHash string   `json:"storageVersionHash"`
}

// loadResources reads the legacy discovery documents of the GA groups.
func loadResources(dir string) []resourceRow {
	var rows []resourceRow
	for _, group := range groups {
		file := "apis__" + group.version.Group + "__" + group.version.Version + ".json"
		if group.version.Group == "" {
			file = "api__v1.json"
		}
		data, err := os.ReadFile(filepath.Join(dir, file))
		check(err)
		var list struct {
			Resources []resourceRow `json:"resources"`
		}
		check(json.Unmarshal(data, &list))
		for _, row := range list.Resources {
			row.GroupOf, row.VersionOf = group.version.Group, group.version.Version
			rows = append(rows, row)
		}
	}
	return rows
}
