#!/usr/bin/env bash
# What a container of the Spark image does: `driver DOCUMENT` runs a job, `executor` is how Spark
# starts the pods that it makes, anything else runs as it is.
set -euo pipefail

case "${1:-}" in
driver)
    exec python -m fairlead_spark.job "$2"
    ;;
executor)
    # Spark hands its Java options over as SPARK_JAVA_OPT_0, _1, …; they may hold blanks.
    options=()
    while IFS= read -r -d '' variable; do
        case "$variable" in
        SPARK_JAVA_OPT_*) options+=("${variable#*=}") ;;
        esac
    done < <(env -0)
    # The driver's files come with the application; the configuration folder stands first.
    exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" "${options[@]}" \
        "-Xms${SPARK_EXECUTOR_MEMORY}" "-Xmx${SPARK_EXECUTOR_MEMORY}" \
        -cp "${SPARK_CONF_DIR:-/opt/spark/conf}:${SPARK_HOME}/jars/*" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" \
        --executor-id "$SPARK_EXECUTOR_ID" \
        --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" \
        --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
        --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*)
    exec "$@"
    ;;
esac
