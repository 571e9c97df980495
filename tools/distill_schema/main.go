// distill_schema writes kube/schema/builtin_schema.cc: the shape of every GA type of Kubernetes as
// tables without prose. A developer runs it by hand when the Kubernetes version moves:
//
//	cd tools/distill_schema && go mod download k8s.io/kubernetes@v1.36.1 && go run . > ../../kube/schema/builtin_schema.cc
//
// Field names, Go types, omitempty and protobuf numbers come from the API packages by reflection;
// list types, merge keys, required fields and defaults from the published OpenAPI v3 documents;
// resources, verbs, short names and categories from the published discovery documents.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"sort"
	"strconv"
	"strings"
)

// Row kinds; the order is ValueKind in kube/schema/schema.h.
const (
	kAny = iota
	kString
	kInt32
	kInt64
	kFloat
	kBool
	kBytes
	kQuantity
	kTime
	kMicroTime
	kDuration
	kIntOrString
	kFieldsV1
	kRawExtension
	kJSON
	kSchemaOrArray
	kSchemaOrBool
	kSchemaOrStrings
	kStruct
	kMap
	kList
)

// Field flags; FieldFlag in kube/schema/schema.h.
const (
	fRequired = 1 << iota
	fPointer
	fOmitEmpty
	fOmitZero
	fInline
	fFromInline
	fPatchMerge
	fPatchReplace
	fRetainKeys
)

// Type flags; TypeFlag in kube/schema/schema.h.
const (
	tAtomic = 1 << iota
	tListSet
	tListMap
	tRootObject
	tPointerElement
)

type property struct {
	Type                 any                  `json:"type"`
	Ref                  string               `json:"$ref"`
	AllOf                []property           `json:"allOf"`
	Items                *property            `json:"items"`
	AdditionalProperties *property            `json:"additionalProperties"`
	Properties           map[string]*property `json:"properties"`
	Required             []string             `json:"required"`
	Default              json.RawMessage      `json:"default"`
	ListType             string               `json:"x-kubernetes-list-type"`
	ListMapKeys          []string             `json:"x-kubernetes-list-map-keys"`
	MapType              string               `json:"x-kubernetes-map-type"`
	MergeKey             string               `json:"x-kubernetes-patch-merge-key"`
	Strategy             string               `json:"x-kubernetes-patch-strategy"`
}

type fieldRow struct {
	name                  string
	typeIndex             int
	flags, number         int
	defaultText, mergeKey string
}

type typeRow struct {
	kind, flags, element int
	name                 string
	keys                 string
	fields               []fieldRow
	first                int
}

type generator struct {
	schemas map[string]*property
	types   []*typeRow
	index   map[string]int
	names   map[string]int
	pool    strings.Builder
}

func main() {
	kubernetes := flag.String("kubernetes", "", "folder of the module k8s.io/kubernetes (default: the module cache)")
	flag.Parse()
	root := *kubernetes
	if root == "" {
		out, err := exec.Command("go", "env", "GOMODCACHE").Output()
		check(err)
		root = filepath.Join(strings.TrimSpace(string(out)), "k8s.io", "kubernetes@v1.36.1")
	}
	g := &generator{schemas: map[string]*property{}, index: map[string]int{}, names: map[string]int{}}
	g.pool.WriteByte(0)
	g.names[""] = 0
	g.loadSchemas(filepath.Join(root, "api", "openapi-spec", "v3"))
	kinds := g.collect()
	resources := loadResources(filepath.Join(root, "api", "discovery"))
	g.write(os.Stdout, kinds, resources)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func (g *generator) loadSchemas(dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	check(err)
	for _, file := range files {
		var document struct {
			Components struct {
				Schemas map[string]*property `json:"schemas"`
			} `json:"components"`
		}
		data, err := os.ReadFile(file)
		check(err)
		check(json.Unmarshal(data, &document))
		for name, schema := range document.Components.Schemas {
			g.schemas[name] = schema
		}
	}
}

// openAPIName turns a Go type into its definition name: io.k8s.api.core.v1.Pod.
func openAPIName(t reflect.Type) string {
	path := t.PkgPath()
	if path == "" {
		return t.Name()
	}
	host, rest, _ := strings.Cut(path, "/")
	parts := strings.Split(host, ".")
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return strings.Join(parts, ".") + "." + strings.ReplaceAll(rest, "/", ".") + "." + t.Name()
}

var special = map[string]int{
	"io.k8s.apimachinery.pkg.api.resource.Quantity":                                         kQuantity,
	"io.k8s.apimachinery.pkg.apis.meta.v1.Time":                                             kTime,
	"io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime":                                        kMicroTime,
	"io.k8s.apimachinery.pkg.apis.meta.v1.Duration":                                         kDuration,
	"io.k8s.apimachinery.pkg.util.intstr.IntOrString":                                       kIntOrString,
	"io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1":                                         kFieldsV1,
	"io.k8s.apimachinery.pkg.runtime.RawExtension":                                          kRawExtension,
	"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON":                         kJSON,
	"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray":       kSchemaOrArray,
	"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool":        kSchemaOrBool,
	"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray": kSchemaOrStrings,
}

// typeOf returns the row for t; p is what OpenAPI says where it stands, or nil.
func (g *generator) typeOf(t reflect.Type, p *property) int {
	if kind, ok := special[openAPIName(t)]; ok && t.Name() != "" {
		row := &typeRow{kind: kind, name: openAPIName(t)}
		if kind == kSchemaOrArray || kind == kSchemaOrBool || kind == kSchemaOrStrings {
			// The element is the schema type itself.
			return g.add(row, func() {
				field, _ := t.FieldByName("Schema")
				row.element = g.typeOf(field.Type.Elem(), nil)
			})
		}
		return g.add(row, nil)
	}
	switch t.Kind() {
	case reflect.String:
		return g.add(&typeRow{kind: kString, name: openAPIName(t)}, nil)
	case reflect.Bool:
		return g.add(&typeRow{kind: kBool, name: openAPIName(t)}, nil)
	case reflect.Int32, reflect.Uint32, reflect.Int16:
		return g.add(&typeRow{kind: kInt32, name: openAPIName(t)}, nil)
	case reflect.Int64, reflect.Int, reflect.Uint64:
		return g.add(&typeRow{kind: kInt64, name: openAPIName(t)}, nil)
	case reflect.Float64, reflect.Float32:
		return g.add(&typeRow{kind: kFloat, name: openAPIName(t)}, nil)
	case reflect.Pointer:
		return g.typeOf(t.Elem(), p)
	case reflect.Interface:
		return g.add(&typeRow{kind: kAny}, nil)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return g.add(&typeRow{kind: kBytes}, nil)
		}
		row := &typeRow{kind: kList}
		if t.PkgPath() != "" {
			row.name = openAPIName(t)
		}
		var items *property
		if p != nil {
			items = p.Items
			switch p.ListType {
			case "set":
				row.flags |= tListSet
			case "map":
				row.flags |= tListMap
			default:
				row.flags |= tAtomic
			}
			row.keys = strings.Join(p.ListMapKeys, ",")
		} else {
			row.flags |= tAtomic
		}
		if t.Elem().Kind() == reflect.Pointer {
			row.flags |= tPointerElement
		}
		row.element = g.typeOf(t.Elem(), items)
		return g.add(row, nil)
	case reflect.Map:
		row := &typeRow{kind: kMap}
		if t.PkgPath() != "" {
			row.name = openAPIName(t)
		}
		var items *property
		if p != nil {
			items = p.AdditionalProperties
			if p.MapType == "atomic" {
				row.flags |= tAtomic
			}
		}
		row.element = g.typeOf(t.Elem(), items)
		return g.add(row, nil)
	case reflect.Struct:
		name := openAPIName(t)
		schema := g.schemas[name]
		row := &typeRow{kind: kStruct, name: name}
		if (schema != nil && schema.MapType == "atomic") || (p != nil && p.MapType == "atomic") {
			row.flags |= tAtomic
		}
		return g.add(row, func() { row.fields = g.fields(t, schema) })
	}
	log.Fatalf("type %v has no row", t)
	return 0
}

// add interns a row; fill completes it after it has its index, so that types may contain themselves.
func (g *generator) add(row *typeRow, fill func()) int {
	key := fmt.Sprintf("%d/%d/%d/%s/%s", row.kind, row.flags, row.element, row.name, row.keys)
	if index, ok := g.index[key]; ok {
		return index
	}
	index := len(g.types)
	g.index[key] = index
	g.types = append(g.types, row)
	if fill != nil {
		fill()
	}
	return index
}

func (g *generator) fields(t reflect.Type, schema *property) []fieldRow {
	var rows []fieldRow
	required := map[string]bool{}
	if schema != nil {
		for _, name := range schema.Required {
			required[name] = true
		}
	}
	for i := 0; i < t.NumField(); i++ {
		field := t.Field(i)
		tag := field.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		if name == "-" || (!field.IsExported() && !field.Anonymous) {
			continue
		}
		number := 0
		if parts := strings.Split(field.Tag.Get("protobuf"), ","); len(parts) > 1 {
			number, _ = strconv.Atoi(parts[1])
		}
		if name == "" && (strings.Contains(options, "inline") || field.Anonymous) {
			inner := field.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			innerSchema := g.schemas[openAPIName(inner)]
			if innerSchema == nil {
				innerSchema = schema
			}
			for _, row := range g.fields(inner, innerSchema) {
				if row.flags&fInline != 0 {
					continue
				}
				row.flags |= fFromInline
				if schema != nil && schema.Properties[row.name] != nil && !required[row.name] {
					row.flags &^= fRequired
				}
				row.number = 0
				rows = append(rows, row)
			}
			if number != 0 {
				rows = append(rows, fieldRow{typeIndex: g.typeOf(inner, nil), flags: fInline, number: number})
			}
			continue
		}
		if name == "" {
			name = field.Name
		}
		row := fieldRow{name: name, number: number}
		if required[name] {
			row.flags |= fRequired
		}
		if field.Type.Kind() == reflect.Pointer {
			row.flags |= fPointer
		}
		if strings.Contains(options, "omitempty") {
			row.flags |= fOmitEmpty
		}
		if strings.Contains(options, "omitzero") {
			row.flags |= fOmitZero
		}
		var p *property
		if schema != nil {
			p = schema.Properties[name]
		}
		if p != nil {
			for _, strategy := range strings.Split(p.Strategy, ",") {
				switch strategy {
				case "merge":
					row.flags |= fPatchMerge
				case "replace":
					row.flags |= fPatchReplace
				case "retainKeys":
					row.flags |= fRetainKeys
				}
			}
			row.mergeKey = p.MergeKey
			row.defaultText = string(p.Default)
		}
		row.typeIndex = g.typeOf(field.Type, p)
		rows = append(rows, row)
	}
	sort.SliceStable(rows, func(i, j int) bool { return rows[i].name < rows[j].name })
	return rows
}

func (g *generator) text(s string) int {
	if at, ok := g.names[s]; ok {
		return at
	}
	at := g.pool.Len()
	g.names[s] = at
	g.pool.WriteString(s)
	g.pool.WriteByte(0)
	return at
}
