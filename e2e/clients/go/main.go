// What a controller written with client-go does, against the server of the kubeconfig in $KUBECONFIG:
// typed and dynamic clients (JSON and protobuf bodies), watches, informers, patches, server-side apply,
// a custom resource, leader election. One line per step; the last is "N passed, N failed".
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	applyapps "k8s.io/client-go/applyconfigurations/apps/v1"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	applymeta "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
)

const namespace = "client-go"

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	widgets     = schema.GroupVersionResource{Group: "go.example.com", Version: "v1", Resource: "widgets"}
)

type clients struct {
	config  *rest.Config
	typed   kubernetes.Interface
	dynamic dynamic.Interface
}

func connect() (*clients, error) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 500, 500
	// As kube-controller-manager and most operators ask: protobuf first, both ways.
	typed := rest.CopyConfig(config)
	typed.ContentType = "application/vnd.kubernetes.protobuf"
	typed.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	typedClient, err := kubernetes.NewForConfig(typed)
	if err != nil {
		return nil, err
	}
	dynamicClient, err := dynamic.NewForConfig(config)
	return &clients{config, typedClient, dynamicClient}, err
}

func within(ctx context.Context, what string, check func() (bool, error)) error {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 15*time.Second, true,
		func(context.Context) (bool, error) { return check() })
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func crud(ctx context.Context, c *clients) error {
	maps := c.typed.CoreV1().ConfigMaps(namespace)
	made, err := maps.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"x": "y"}},
		Data:       map[string]string{"k": "v"}, BinaryData: map[string][]byte{"b": {0, 1, 2}}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if made.UID == "" || made.ResourceVersion == "" || made.BinaryData["b"][2] != 2 {
		return fmt.Errorf("created object is not whole: %v", made)
	}
	if _, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("a second create: %v", err)
	}
	made.Data["k"] = "w"
	updated, err := maps.Update(ctx, made, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	if _, err = maps.Update(ctx, made, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		return fmt.Errorf("an update of what changed: %v", err)
	}
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		updated, err = maps.Get(ctx, "a", metav1.GetOptions{})
		if err != nil {
			return err
		}
		updated.Data["n"] = "1"
		_, err = maps.Update(ctx, updated, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	list, err := maps.List(ctx, metav1.ListOptions{LabelSelector: "x=y"})
	if err != nil || len(list.Items) != 1 || list.Items[0].Data["n"] != "1" {
		return fmt.Errorf("list: %v %v", list, err)
	}
	grace := int64(0)
	if err = maps.Delete(ctx, "a", metav1.DeleteOptions{GracePeriodSeconds: &grace, Preconditions: &metav1.Preconditions{UID: &made.UID}}); err != nil {
		return err
	}
	if _, err = maps.Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("get after delete: %v", err)
	}
	_, err = c.typed.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "bad"}}, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) {
		return fmt.Errorf("a pod without containers: %v", err)
	}
	return nil
}

func patches(ctx context.Context, c *clients) error {
	maps := c.typed.CoreV1().ConfigMaps(namespace)
	if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Data: map[string]string{"a": "1"}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	for kind, body := range map[types.PatchType]string{
		types.MergePatchType:          `{"data":{"merge":"1"}}`,
		types.StrategicMergePatchType: `{"data":{"strategic":"1"}}`,
		types.JSONPatchType:           `[{"op":"add","path":"/data/json","value":"1"}]`,
	} {
		if _, err := maps.Patch(ctx, "p", kind, []byte(body), metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	got, err := maps.Get(ctx, "p", metav1.GetOptions{})
	if err != nil || len(got.Data) != 4 {
		return fmt.Errorf("after three patches: %v %v", got.Data, err)
	}
	_, err = maps.Patch(ctx, "p", types.JSONPatchType, []byte(`[{"op":"test","path":"/data/json","value":"2"}]`), metav1.PatchOptions{})
	if !apierrors.IsInvalid(err) {
		return fmt.Errorf("a failing test: %v", err)
	}
	return nil
}

func pages(ctx context.Context, c *clients) error {
	maps := c.typed.CoreV1().ConfigMaps(namespace)
	for i := range 7 {
		name := fmt.Sprintf("page-%d", i)
		if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"page": "x"}}}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	names, next := 0, ""
	for {
		list, err := maps.List(ctx, metav1.ListOptions{LabelSelector: "page", Limit: 3, Continue: next})
		if err != nil {
			return err
		}
		if len(list.Items) > 3 {
			return fmt.Errorf("a page of %d", len(list.Items))
		}
		names += len(list.Items)
		if next = list.Continue; next == "" {
			break
		}
	}
	if names != 7 {
		return fmt.Errorf("%d of 7 objects on all pages", names)
	}
	if err := maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "page"}); err != nil {
		return err
	}
	list, err := maps.List(ctx, metav1.ListOptions{LabelSelector: "page"})
	if err != nil || len(list.Items) != 0 {
		return fmt.Errorf("after deletecollection: %v %v", list, err)
	}
	return nil
}

func watching(ctx context.Context, c *clients) error {
	secrets := c.typed.CoreV1().Secrets(namespace)
	list, err := secrets.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	stream, err := secrets.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion, LabelSelector: "watch=me"})
	if err != nil {
		return err
	}
	defer stream.Stop()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "w", Labels: map[string]string{"watch": "me"}}, StringData: map[string]string{"a": "b"}}
	if secret, err = secrets.Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		return err
	}
	secret.Data["c"] = []byte("d")
	if secret, err = secrets.Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		return err
	}
	secret.Labels = nil // leaves the selector: told as a deletion
	if _, err = secrets.Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		return err
	}
	for _, wanted := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted} {
		select {
		case event := <-stream.ResultChan():
			if event.Type != wanted || event.Object.(*corev1.Secret).Name != "w" {
				return fmt.Errorf("wanted %s, got %s %v", wanted, event.Type, event.Object)
			}
		case <-time.After(10 * time.Second):
			return fmt.Errorf("no %s event", wanted)
		}
	}
	return nil
}

func informing(ctx context.Context, c *clients) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	factory := informers.NewSharedInformerFactoryWithOptions(c.typed, 0, informers.WithNamespace(namespace))
	maps := factory.Core().V1().ConfigMaps()
	var added, deleted atomic.Int32
	if _, err := maps.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { added.Add(1) },
		DeleteFunc: func(any) { deleted.Add(1) },
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), maps.Informer().HasSynced) {
		return errors.New("the cache did not sync")
	}
	before := added.Load()
	for i := range 20 {
		name := fmt.Sprintf("informed-%d", i)
		if _, err := c.typed.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	if err := within(ctx, "20 add events", func() (bool, error) { return added.Load() == before+20, nil }); err != nil {
		return err
	}
	if _, err := maps.Lister().ConfigMaps(namespace).Get("informed-7"); err != nil {
		return err
	}
	if err := c.typed.CoreV1().ConfigMaps(namespace).Delete(ctx, "informed-7", metav1.DeleteOptions{}); err != nil {
		return err
	}
	return within(ctx, "a delete event", func() (bool, error) { return deleted.Load() == 1, nil })
}

func applying(ctx context.Context, c *clients) error {
	deployments := c.typed.AppsV1().Deployments(namespace)
	labels := map[string]string{"app": "web"}
	wanted := func(replicas int32, image string) *applyapps.DeploymentApplyConfiguration {
		return applyapps.Deployment("web", namespace).WithSpec(applyapps.DeploymentSpec().WithReplicas(replicas).
			WithSelector(applymeta.LabelSelector().WithMatchLabels(labels)).
			WithTemplate(applycore.PodTemplateSpec().WithLabels(labels).WithSpec(
				applycore.PodSpec().WithContainers(applycore.Container().WithName("c").WithImage(image)))))
	}
	if _, err := deployments.Apply(ctx, wanted(0, "nginx:1"), metav1.ApplyOptions{FieldManager: "first"}); err != nil {
		return err
	}
	if _, err := deployments.Apply(ctx, wanted(0, "nginx:2"), metav1.ApplyOptions{FieldManager: "second"}); !apierrors.IsConflict(err) {
		return fmt.Errorf("somebody else's field: %v", err)
	}
	forced, err := deployments.Apply(ctx, wanted(0, "nginx:2"), metav1.ApplyOptions{FieldManager: "second", Force: true})
	if err != nil || forced.Spec.Template.Spec.Containers[0].Image != "nginx:2" {
		return fmt.Errorf("forced: %v %v", forced, err)
	}
	extracted, err := applyapps.ExtractDeployment(forced, "second")
	if err != nil || *extracted.Spec.Replicas != 0 {
		return fmt.Errorf("what second owns: %v %v", extracted, err)
	}
	scale, err := deployments.GetScale(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	scale.Spec.Replicas = 1
	if _, err = deployments.UpdateScale(ctx, "web", scale, metav1.UpdateOptions{}); err != nil {
		return err
	}
	var got *appsv1.Deployment
	if got, err = deployments.Get(ctx, "web", metav1.GetOptions{}); err != nil || *got.Spec.Replicas != 1 {
		return fmt.Errorf("scaled: %v %v", got, err)
	}
	return deployments.Delete(ctx, "web", metav1.DeleteOptions{})
}

func customKind(ctx context.Context, c *clients) error {
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets.go.example.com"},
		"spec": map[string]any{
			"group": "go.example.com", "scope": "Namespaced",
			"names": map[string]any{"plural": "widgets", "kind": "Widget"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"subresources": map[string]any{"status": map[string]any{}},
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object", "properties": map[string]any{
						"spec": map[string]any{"type": "object", "required": []any{"size"}, "properties": map[string]any{
							"size":  map[string]any{"type": "integer", "minimum": int64(1)},
							"color": map[string]any{"type": "string", "default": "red"}}},
						"status": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}},
		}}}
	if _, err := c.dynamic.Resource(definitions).Create(ctx, definition, metav1.CreateOptions{}); err != nil {
		return err
	}
	err := within(ctx, "Established", func() (bool, error) {
		got, err := c.dynamic.Resource(definitions).Get(ctx, "widgets.go.example.com", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		conditions, _, _ := unstructured.NestedSlice(got.Object, "status", "conditions") // null at first
		for _, one := range conditions {
			condition := one.(map[string]any)
			if condition["type"] == "Established" && condition["status"] == "True" {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(c.dynamic, 0, namespace, nil)
	informer := factory.ForResource(widgets)
	var seen atomic.Int32
	if _, err = informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { seen.Add(1) }}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	widget := func(name string, size int64) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "go.example.com/v1", "kind": "Widget",
			"metadata": map[string]any{"name": name}, "spec": map[string]any{"size": size}}}
	}
	client := c.dynamic.Resource(widgets).Namespace(namespace)
	made, err := client.Create(ctx, widget("one", 3), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if color, _, _ := unstructured.NestedString(made.Object, "spec", "color"); color != "red" {
		return fmt.Errorf("the default: %v", made)
	}
	if _, err = client.Create(ctx, widget("zero", 0), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		return fmt.Errorf("a size of 0: %v", err)
	}
	_ = unstructured.SetNestedField(made.Object, "done", "status", "phase")
	if made, err = client.UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil || made.GetGeneration() != 1 {
		return fmt.Errorf("status: %v %v", made, err)
	}
	if _, err = client.Apply(ctx, "one", widget("one", 5), metav1.ApplyOptions{FieldManager: "go", Force: true}); err != nil {
		return err
	}
	return within(ctx, "the informer's event", func() (bool, error) { return seen.Load() == 1, nil })
}

func electing(ctx context.Context, c *clients) error {
	elect := func(ctx context.Context, id string, leads *atomic.Bool) {
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Name: "leader", Namespace: namespace},
				Client: c.typed.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: id}},
			LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 200 * time.Millisecond,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { leads.Store(true) },
				OnStoppedLeading: func() { leads.Store(false) }}})
	}
	var first, second atomic.Bool
	firstCtx, stopFirst := context.WithCancel(ctx)
	secondCtx, stopSecond := context.WithCancel(ctx)
	defer stopSecond()
	go elect(firstCtx, "first", &first)
	if err := within(ctx, "first leads", func() (bool, error) { return first.Load(), nil }); err != nil {
		stopFirst()
		return err
	}
	go elect(secondCtx, "second", &second)
	time.Sleep(time.Second)
	if second.Load() {
		stopFirst()
		return errors.New("two leaders")
	}
	stopFirst()
	return within(ctx, "second takes over", func() (bool, error) { return second.Load() && !first.Load(), nil })
}

func discovering(_ context.Context, c *clients) error {
	version, err := c.typed.Discovery().ServerVersion()
	if err != nil || version.Minor != "36" {
		return fmt.Errorf("version: %v %v", version, err)
	}
	_, lists, err := c.typed.Discovery().ServerGroupsAndResources()
	if err != nil {
		return err
	}
	kinds := 0
	for _, list := range lists {
		kinds += len(list.APIResources)
	}
	if kinds < 100 {
		return fmt.Errorf("%d resources in discovery", kinds)
	}
	if _, err = c.typed.Discovery().OpenAPISchema(); err != nil {
		return err
	}
	paths, err := c.typed.Discovery().OpenAPIV3().Paths()
	if err != nil || paths["apis/apps/v1"] == nil {
		return fmt.Errorf("OpenAPI v3: %v %v", paths, err)
	}
	return nil
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c, err := connect()
	if err == nil {
		_, err = c.typed.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	}
	if err != nil {
		fmt.Println("FAIL  client-go: connect:", err)
		fmt.Println("0 passed, 1 failed")
		os.Exit(1)
	}
	passed, failed := 0, 0
	for _, step := range []struct {
		name string
		run  func(context.Context, *clients) error
	}{
		{"discovery and OpenAPI", discovering}, {"create, read, update, delete", crud}, {"patches", patches},
		{"lists in pages, deletecollection", pages}, {"watch", watching}, {"shared informers", informing},
		{"server-side apply and scale", applying}, {"a custom kind with the dynamic client", customKind},
		{"leader election", electing},
	} {
		if err := step.run(ctx, c); err != nil {
			failed++
			fmt.Printf("FAIL  client-go: %s: %v\n", step.name, err)
		} else {
			passed++
			fmt.Println("ok    client-go:", step.name)
		}
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}
