// Command kube-controller-manager is the Kubernetes controller manager, unchanged.
package main

import (
	"os"
	_ "time/tzdata" // as in the published program: a CronJob may name a time zone

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func main() {
	os.Exit(cli.Run(app.NewControllerManagerCommand()))
}
