package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// objectState identifies an object's content, so that two programs can compare their objects.
type objectState struct {
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion"`
	Hash            string `json:"hash"`
}

// resourceState maps namespace/name to the state of the object.
type resourceState map[string]objectState

type dump struct {
	Resources map[string]resourceState `json:"resources"`
}

func stateOf(objects []runtime.Object) (resourceState, error) {
	state := make(resourceState, len(objects))
	for _, object := range objects {
		key, one, err := describe(object)
		if err != nil {
			return nil, err
		}
		if _, twice := state[key]; twice {
			return nil, fmt.Errorf("%s appears twice", key)
		}
		state[key] = one
	}
	return state, nil
}

func describe(object runtime.Object) (string, objectState, error) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return "", objectState{}, err
	}
	hash, err := canonicalHash(object)
	if err != nil {
		return "", objectState{}, err
	}
	return accessor.GetNamespace() + "/" + accessor.GetName(), objectState{
		UID:             string(accessor.GetUID()),
		ResourceVersion: accessor.GetResourceVersion(),
		Hash:            hash,
	}, nil
}

// canonicalHash returns a hash of the object that does not depend on the encoding in which it was
// received. However, objects of dynamic clients have kind and apiVersion, and those of typed
// clients do not.
func canonicalHash(object runtime.Object) (string, error) {
	var hashed any = object
	if partial, ok := object.(*metav1.PartialObjectMetadata); ok {
		hashed = partial.ObjectMeta
	}
	encoded, err := json.Marshal(hashed)
	if err != nil {
		return "", err
	}
	// Decoding into a tree and encoding again sorts the members by name.
	var tree any
	if err := json.Unmarshal(encoded, &tree); err != nil {
		return "", err
	}
	canonical, err := json.Marshal(tree)
	if err != nil {
		return "", err
	}
	digest := sha256.Sum256(canonical)
	return hex.EncodeToString(digest[:12]), nil
}
