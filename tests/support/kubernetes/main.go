// Decodes Kubernetes manifests strictly into the types of k8s.io/api; prints kind and name of each, or the error.
package main

import (
	"bytes"
	"fmt"
	"os"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

var kinds = map[string]func() meta.Object{
	"apps/v1 Deployment":            func() meta.Object { return &apps.Deployment{} },
	"apps/v1 StatefulSet":           func() meta.Object { return &apps.StatefulSet{} },
	"batch/v1 Job":                  func() meta.Object { return &batch.Job{} },
	"policy/v1 PodDisruptionBudget": func() meta.Object { return &policy.PodDisruptionBudget{} },
	"v1 ConfigMap":                  func() meta.Object { return &core.ConfigMap{} },
	"v1 Service":                    func() meta.Object { return &core.Service{} },
}

func validate(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for _, document := range bytes.Split(content, []byte("\n---\n")) {
		var kind meta.TypeMeta
		if err := yaml.Unmarshal(document, &kind); err != nil {
			return err
		}
		create, known := kinds[kind.APIVersion+" "+kind.Kind]
		if !known {
			return fmt.Errorf("unknown kind %s %s", kind.APIVersion, kind.Kind)
		}
		object := create()
		if err := yaml.UnmarshalStrict(document, object); err != nil {
			return err
		}
		fmt.Println(kind.Kind, object.GetName())
	}
	return nil
}

func main() {
	for _, path := range os.Args[1:] {
		if err := validate(path); err != nil {
			fmt.Fprintln(os.Stderr, path, err)
			os.Exit(1)
		}
	}
}
