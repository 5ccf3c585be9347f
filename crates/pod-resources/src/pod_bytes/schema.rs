//! Protobuf fields of a Pod: JSON name, number and kind.
//!
//! From Kubernetes 1.36 `k8s.io/api/core/v1` and `k8s.io/apimachinery/pkg/apis/meta/v1`. The fields
//! of each message are sorted by number, the order in which they are encoded.

use super::Kind::{
    Bool, Fields, Inlined, Int, IntOrText, Of, Quantity, QuantityMap, Text, TextMap, Time,
};
use super::Message;

pub(super) static POD: Message = Message(&[("metadata", 1, Of(&OBJECT_META)), ("spec", 2, Of(&POD_SPEC)),
    ("status", 3, Of(&POD_STATUS))]);
static OBJECT_META: Message = Message(&[("name", 1, Text), ("generateName", 2, Text),
    ("namespace", 3, Text), ("selfLink", 4, Text), ("uid", 5, Text), ("resourceVersion", 6, Text),
    ("generation", 7, Int), ("creationTimestamp", 8, Time), ("deletionTimestamp", 9, Time),
    ("deletionGracePeriodSeconds", 10, Int), ("labels", 11, TextMap), ("annotations", 12, TextMap),
    ("ownerReferences", 13, Of(&OWNER_REFERENCE)), ("finalizers", 14, Text),
    ("managedFields", 17, Of(&MANAGED_FIELDS_ENTRY))]);
static POD_SPEC: Message = Message(&[("volumes", 1, Of(&VOLUME)), ("containers", 2, Of(&CONTAINER)),
    ("restartPolicy", 3, Text), ("terminationGracePeriodSeconds", 4, Int),
    ("activeDeadlineSeconds", 5, Int), ("dnsPolicy", 6, Text), ("nodeSelector", 7, TextMap),
    ("serviceAccountName", 8, Text), ("serviceAccount", 9, Text), ("nodeName", 10, Text),
    ("hostNetwork", 11, Bool), ("hostPID", 12, Bool), ("hostIPC", 13, Bool),
    ("securityContext", 14, Of(&POD_SECURITY_CONTEXT)),
    ("imagePullSecrets", 15, Of(&LOCAL_OBJECT_REFERENCE)), ("hostname", 16, Text), ("subdomain", 17, Text),
    ("affinity", 18, Of(&AFFINITY)), ("schedulerName", 19, Text), ("initContainers", 20, Of(&CONTAINER)),
    ("automountServiceAccountToken", 21, Bool), ("tolerations", 22, Of(&TOLERATION)),
    ("hostAliases", 23, Of(&HOST_ALIAS)), ("priorityClassName", 24, Text), ("priority", 25, Int),
    ("dnsConfig", 26, Of(&POD_DNS_CONFIG)), ("shareProcessNamespace", 27, Bool),
    ("readinessGates", 28, Of(&POD_READINESS_GATE)), ("runtimeClassName", 29, Text),
    ("enableServiceLinks", 30, Bool), ("preemptionPolicy", 31, Text), ("overhead", 32, QuantityMap),
    ("topologySpreadConstraints", 33, Of(&TOPOLOGY_SPREAD_CONSTRAINT)),
    ("ephemeralContainers", 34, Of(&EPHEMERAL_CONTAINER)), ("setHostnameAsFQDN", 35, Bool),
    ("os", 36, Of(&POD_OS)), ("hostUsers", 37, Bool), ("schedulingGates", 38, Of(&POD_SCHEDULING_GATE)),
    ("resourceClaims", 39, Of(&POD_RESOURCE_CLAIM)), ("resources", 40, Of(&RESOURCE_REQUIREMENTS)),
    ("hostnameOverride", 41, Text), ("schedulingGroup", 43, Of(&POD_SCHEDULING_GROUP))]);
static POD_STATUS: Message = Message(&[("phase", 1, Text), ("conditions", 2, Of(&POD_CONDITION)),
    ("message", 3, Text), ("reason", 4, Text), ("hostIP", 5, Text), ("podIP", 6, Text),
    ("startTime", 7, Time), ("containerStatuses", 8, Of(&CONTAINER_STATUS)), ("qosClass", 9, Text),
    ("initContainerStatuses", 10, Of(&CONTAINER_STATUS)), ("nominatedNodeName", 11, Text),
    ("podIPs", 12, Of(&POD_IP)), ("ephemeralContainerStatuses", 13, Of(&CONTAINER_STATUS)),
    ("resize", 14, Text), ("resourceClaimStatuses", 15, Of(&POD_RESOURCE_CLAIM_STATUS)),
    ("hostIPs", 16, Of(&HOST_IP)), ("observedGeneration", 17, Int),
    ("extendedResourceClaimStatus", 18, Of(&POD_EXTENDED_RESOURCE_CLAIM_STATUS)),
    ("allocatedResources", 19, QuantityMap), ("resources", 20, Of(&RESOURCE_REQUIREMENTS)),
    ("nodeAllocatableResourceClaimStatuses", 21, Of(&NODE_ALLOCATABLE_RESOURCE_CLAIM_STATUS))]);
static OWNER_REFERENCE: Message = Message(&[("kind", 1, Text), ("name", 3, Text), ("uid", 4, Text),
    ("apiVersion", 5, Text), ("controller", 6, Bool), ("blockOwnerDeletion", 7, Bool)]);
static MANAGED_FIELDS_ENTRY: Message = Message(&[("manager", 1, Text), ("operation", 2, Text),
    ("apiVersion", 3, Text), ("time", 4, Time), ("fieldsType", 6, Text), ("fieldsV1", 7, Fields),
    ("subresource", 8, Text)]);
static VOLUME: Message = Message(&[("name", 1, Text), ("volumeSource", 2, Inlined(&VOLUME_SOURCE))]);
static CONTAINER: Message = Message(&[("name", 1, Text), ("image", 2, Text), ("command", 3, Text),
    ("args", 4, Text), ("workingDir", 5, Text), ("ports", 6, Of(&CONTAINER_PORT)),
    ("env", 7, Of(&ENV_VAR)), ("resources", 8, Of(&RESOURCE_REQUIREMENTS)),
    ("volumeMounts", 9, Of(&VOLUME_MOUNT)), ("livenessProbe", 10, Of(&PROBE)),
    ("readinessProbe", 11, Of(&PROBE)), ("lifecycle", 12, Of(&LIFECYCLE)),
    ("terminationMessagePath", 13, Text), ("imagePullPolicy", 14, Text),
    ("securityContext", 15, Of(&SECURITY_CONTEXT)), ("stdin", 16, Bool), ("stdinOnce", 17, Bool),
    ("tty", 18, Bool), ("envFrom", 19, Of(&ENV_FROM_SOURCE)), ("terminationMessagePolicy", 20, Text),
    ("volumeDevices", 21, Of(&VOLUME_DEVICE)), ("startupProbe", 22, Of(&PROBE)),
    ("resizePolicy", 23, Of(&CONTAINER_RESIZE_POLICY)), ("restartPolicy", 24, Text),
    ("restartPolicyRules", 25, Of(&CONTAINER_RESTART_RULE))]);
static EPHEMERAL_CONTAINER: Message = Message(&[
    ("ephemeralContainerCommon", 1, Inlined(&EPHEMERAL_CONTAINER_COMMON)),
    ("targetContainerName", 2, Text)]);
static POD_SECURITY_CONTEXT: Message = Message(&[("seLinuxOptions", 1, Of(&SE_LINUX_OPTIONS)),
    ("runAsUser", 2, Int), ("runAsNonRoot", 3, Bool), ("supplementalGroups", 4, Int), ("fsGroup", 5, Int),
    ("runAsGroup", 6, Int), ("sysctls", 7, Of(&SYSCTL)),
    ("windowsOptions", 8, Of(&WINDOWS_SECURITY_CONTEXT_OPTIONS)), ("fsGroupChangePolicy", 9, Text),
    ("seccompProfile", 10, Of(&SECCOMP_PROFILE)), ("appArmorProfile", 11, Of(&APP_ARMOR_PROFILE)),
    ("supplementalGroupsPolicy", 12, Text), ("seLinuxChangePolicy", 13, Text)]);
static LOCAL_OBJECT_REFERENCE: Message = Message(&[("name", 1, Text)]);
static AFFINITY: Message = Message(&[("nodeAffinity", 1, Of(&NODE_AFFINITY)),
    ("podAffinity", 2, Of(&POD_AFFINITY)), ("podAntiAffinity", 3, Of(&POD_ANTI_AFFINITY))]);
static TOLERATION: Message = Message(&[("key", 1, Text), ("operator", 2, Text), ("value", 3, Text),
    ("effect", 4, Text), ("tolerationSeconds", 5, Int)]);
static HOST_ALIAS: Message = Message(&[("ip", 1, Text), ("hostnames", 2, Text)]);
static POD_DNS_CONFIG: Message = Message(&[("nameservers", 1, Text), ("searches", 2, Text),
    ("options", 3, Of(&POD_DNS_CONFIG_OPTION))]);
static POD_READINESS_GATE: Message = Message(&[("conditionType", 1, Text)]);
static TOPOLOGY_SPREAD_CONSTRAINT: Message = Message(&[("maxSkew", 1, Int), ("topologyKey", 2, Text),
    ("whenUnsatisfiable", 3, Text), ("labelSelector", 4, Of(&LABEL_SELECTOR)), ("minDomains", 5, Int),
    ("nodeAffinityPolicy", 6, Text), ("nodeTaintsPolicy", 7, Text), ("matchLabelKeys", 8, Text)]);
static POD_OS: Message = Message(&[("name", 1, Text)]);
static POD_SCHEDULING_GATE: Message = Message(&[("name", 1, Text)]);
static POD_RESOURCE_CLAIM: Message = Message(&[("name", 1, Text), ("resourceClaimName", 3, Text),
    ("resourceClaimTemplateName", 4, Text)]);
static RESOURCE_REQUIREMENTS: Message = Message(&[("limits", 1, QuantityMap), ("requests", 2, QuantityMap),
    ("claims", 3, Of(&RESOURCE_CLAIM))]);
static POD_SCHEDULING_GROUP: Message = Message(&[("podGroupName", 1, Text)]);
static POD_CONDITION: Message = Message(&[("type", 1, Text), ("status", 2, Text),
    ("lastProbeTime", 3, Time), ("lastTransitionTime", 4, Time), ("reason", 5, Text), ("message", 6, Text),
    ("observedGeneration", 7, Int)]);
static HOST_IP: Message = Message(&[("ip", 1, Text)]);
static POD_IP: Message = Message(&[("ip", 1, Text)]);
static CONTAINER_STATUS: Message = Message(&[("name", 1, Text), ("state", 2, Of(&CONTAINER_STATE)),
    ("lastState", 3, Of(&CONTAINER_STATE)), ("ready", 4, Bool), ("restartCount", 5, Int),
    ("image", 6, Text), ("imageID", 7, Text), ("containerID", 8, Text), ("started", 9, Bool),
    ("allocatedResources", 10, QuantityMap), ("resources", 11, Of(&RESOURCE_REQUIREMENTS)),
    ("volumeMounts", 12, Of(&VOLUME_MOUNT_STATUS)), ("user", 13, Of(&CONTAINER_USER)),
    ("allocatedResourcesStatus", 14, Of(&RESOURCE_STATUS)), ("stopSignal", 15, Text)]);
static POD_RESOURCE_CLAIM_STATUS: Message = Message(&[("name", 1, Text), ("resourceClaimName", 2, Text)]);
static POD_EXTENDED_RESOURCE_CLAIM_STATUS: Message = Message(&[
    ("requestMappings", 1, Of(&CONTAINER_EXTENDED_RESOURCE_REQUEST)), ("resourceClaimName", 2, Text)]);
static NODE_ALLOCATABLE_RESOURCE_CLAIM_STATUS: Message = Message(&[("resourceClaimName", 1, Text),
    ("containers", 2, Text), ("resources", 3, QuantityMap)]);
static VOLUME_SOURCE: Message = Message(&[("hostPath", 1, Of(&HOST_PATH_VOLUME_SOURCE)),
    ("emptyDir", 2, Of(&EMPTY_DIR_VOLUME_SOURCE)),
    ("gcePersistentDisk", 3, Of(&GCE_PERSISTENT_DISK_VOLUME_SOURCE)),
    ("awsElasticBlockStore", 4, Of(&AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE)),
    ("gitRepo", 5, Of(&GIT_REPO_VOLUME_SOURCE)), ("secret", 6, Of(&SECRET_VOLUME_SOURCE)),
    ("nfs", 7, Of(&NFS_VOLUME_SOURCE)), ("iscsi", 8, Of(&ISCSI_VOLUME_SOURCE)),
    ("glusterfs", 9, Of(&GLUSTERFS_VOLUME_SOURCE)),
    ("persistentVolumeClaim", 10, Of(&PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE)),
    ("rbd", 11, Of(&RBD_VOLUME_SOURCE)), ("flexVolume", 12, Of(&FLEX_VOLUME_SOURCE)),
    ("cinder", 13, Of(&CINDER_VOLUME_SOURCE)), ("cephfs", 14, Of(&CEPH_FS_VOLUME_SOURCE)),
    ("flocker", 15, Of(&FLOCKER_VOLUME_SOURCE)), ("downwardAPI", 16, Of(&DOWNWARD_API_VOLUME_SOURCE)),
    ("fc", 17, Of(&FC_VOLUME_SOURCE)), ("azureFile", 18, Of(&AZURE_FILE_VOLUME_SOURCE)),
    ("configMap", 19, Of(&CONFIG_MAP_VOLUME_SOURCE)),
    ("vsphereVolume", 20, Of(&VSPHERE_VIRTUAL_DISK_VOLUME_SOURCE)),
    ("quobyte", 21, Of(&QUOBYTE_VOLUME_SOURCE)), ("azureDisk", 22, Of(&AZURE_DISK_VOLUME_SOURCE)),
    ("photonPersistentDisk", 23, Of(&PHOTON_PERSISTENT_DISK_VOLUME_SOURCE)),
    ("portworxVolume", 24, Of(&PORTWORX_VOLUME_SOURCE)), ("scaleIO", 25, Of(&SCALE_IO_VOLUME_SOURCE)),
    ("projected", 26, Of(&PROJECTED_VOLUME_SOURCE)), ("storageos", 27, Of(&STORAGE_OS_VOLUME_SOURCE)),
    ("csi", 28, Of(&CSI_VOLUME_SOURCE)), ("ephemeral", 29, Of(&EPHEMERAL_VOLUME_SOURCE)),
    ("image", 30, Of(&IMAGE_VOLUME_SOURCE))]);
static CONTAINER_PORT: Message = Message(&[("name", 1, Text), ("hostPort", 2, Int),
    ("containerPort", 3, Int), ("protocol", 4, Text), ("hostIP", 5, Text)]);
static ENV_FROM_SOURCE: Message = Message(&[("prefix", 1, Text),
    ("configMapRef", 2, Of(&CONFIG_MAP_ENV_SOURCE)), ("secretRef", 3, Of(&SECRET_ENV_SOURCE))]);
static ENV_VAR: Message = Message(&[("name", 1, Text), ("value", 2, Text),
    ("valueFrom", 3, Of(&ENV_VAR_SOURCE))]);
static CONTAINER_RESIZE_POLICY: Message = Message(&[("resourceName", 1, Text), ("restartPolicy", 2, Text)]);
static CONTAINER_RESTART_RULE: Message = Message(&[("action", 1, Text),
    ("exitCodes", 2, Of(&CONTAINER_RESTART_RULE_ON_EXIT_CODES))]);
static VOLUME_MOUNT: Message = Message(&[("name", 1, Text), ("readOnly", 2, Bool), ("mountPath", 3, Text),
    ("subPath", 4, Text), ("mountPropagation", 5, Text), ("subPathExpr", 6, Text),
    ("recursiveReadOnly", 7, Text)]);
static VOLUME_DEVICE: Message = Message(&[("name", 1, Text), ("devicePath", 2, Text)]);
static PROBE: Message = Message(&[("handler", 1, Inlined(&PROBE_HANDLER)), ("initialDelaySeconds", 2, Int),
    ("timeoutSeconds", 3, Int), ("periodSeconds", 4, Int), ("successThreshold", 5, Int),
    ("failureThreshold", 6, Int), ("terminationGracePeriodSeconds", 7, Int)]);
static LIFECYCLE: Message = Message(&[("postStart", 1, Of(&LIFECYCLE_HANDLER)),
    ("preStop", 2, Of(&LIFECYCLE_HANDLER)), ("stopSignal", 3, Text)]);
static SECURITY_CONTEXT: Message = Message(&[("capabilities", 1, Of(&CAPABILITIES)),
    ("privileged", 2, Bool), ("seLinuxOptions", 3, Of(&SE_LINUX_OPTIONS)), ("runAsUser", 4, Int),
    ("runAsNonRoot", 5, Bool), ("readOnlyRootFilesystem", 6, Bool), ("allowPrivilegeEscalation", 7, Bool),
    ("runAsGroup", 8, Int), ("procMount", 9, Text),
    ("windowsOptions", 10, Of(&WINDOWS_SECURITY_CONTEXT_OPTIONS)),
    ("seccompProfile", 11, Of(&SECCOMP_PROFILE)), ("appArmorProfile", 12, Of(&APP_ARMOR_PROFILE))]);
static EPHEMERAL_CONTAINER_COMMON: Message = Message(&[("name", 1, Text), ("image", 2, Text),
    ("command", 3, Text), ("args", 4, Text), ("workingDir", 5, Text), ("ports", 6, Of(&CONTAINER_PORT)),
    ("env", 7, Of(&ENV_VAR)), ("resources", 8, Of(&RESOURCE_REQUIREMENTS)),
    ("volumeMounts", 9, Of(&VOLUME_MOUNT)), ("livenessProbe", 10, Of(&PROBE)),
    ("readinessProbe", 11, Of(&PROBE)), ("lifecycle", 12, Of(&LIFECYCLE)),
    ("terminationMessagePath", 13, Text), ("imagePullPolicy", 14, Text),
    ("securityContext", 15, Of(&SECURITY_CONTEXT)), ("stdin", 16, Bool), ("stdinOnce", 17, Bool),
    ("tty", 18, Bool), ("envFrom", 19, Of(&ENV_FROM_SOURCE)), ("terminationMessagePolicy", 20, Text),
    ("volumeDevices", 21, Of(&VOLUME_DEVICE)), ("startupProbe", 22, Of(&PROBE)),
    ("resizePolicy", 23, Of(&CONTAINER_RESIZE_POLICY)), ("restartPolicy", 24, Text),
    ("restartPolicyRules", 25, Of(&CONTAINER_RESTART_RULE))]);
static SE_LINUX_OPTIONS: Message = Message(&[("user", 1, Text), ("role", 2, Text), ("type", 3, Text),
    ("level", 4, Text)]);
static WINDOWS_SECURITY_CONTEXT_OPTIONS: Message = Message(&[("gmsaCredentialSpecName", 1, Text),
    ("gmsaCredentialSpec", 2, Text), ("runAsUserName", 3, Text), ("hostProcess", 4, Bool)]);
static SYSCTL: Message = Message(&[("name", 1, Text), ("value", 2, Text)]);
static SECCOMP_PROFILE: Message = Message(&[("type", 1, Text), ("localhostProfile", 2, Text)]);
static APP_ARMOR_PROFILE: Message = Message(&[("type", 1, Text), ("localhostProfile", 2, Text)]);
static NODE_AFFINITY: Message = Message(&[
    ("requiredDuringSchedulingIgnoredDuringExecution", 1, Of(&NODE_SELECTOR)),
    ("preferredDuringSchedulingIgnoredDuringExecution", 2, Of(&PREFERRED_SCHEDULING_TERM))]);
static POD_AFFINITY: Message = Message(&[
    ("requiredDuringSchedulingIgnoredDuringExecution", 1, Of(&POD_AFFINITY_TERM)),
    ("preferredDuringSchedulingIgnoredDuringExecution", 2, Of(&WEIGHTED_POD_AFFINITY_TERM))]);
static POD_ANTI_AFFINITY: Message = Message(&[
    ("requiredDuringSchedulingIgnoredDuringExecution", 1, Of(&POD_AFFINITY_TERM)),
    ("preferredDuringSchedulingIgnoredDuringExecution", 2, Of(&WEIGHTED_POD_AFFINITY_TERM))]);
static POD_DNS_CONFIG_OPTION: Message = Message(&[("name", 1, Text), ("value", 2, Text)]);
static LABEL_SELECTOR: Message = Message(&[("matchLabels", 1, TextMap),
    ("matchExpressions", 2, Of(&LABEL_SELECTOR_REQUIREMENT))]);
static RESOURCE_CLAIM: Message = Message(&[("name", 1, Text), ("request", 2, Text)]);
static CONTAINER_STATE: Message = Message(&[("waiting", 1, Of(&CONTAINER_STATE_WAITING)),
    ("running", 2, Of(&CONTAINER_STATE_RUNNING)), ("terminated", 3, Of(&CONTAINER_STATE_TERMINATED))]);
static VOLUME_MOUNT_STATUS: Message = Message(&[("name", 1, Text), ("mountPath", 2, Text),
    ("readOnly", 3, Bool), ("recursiveReadOnly", 4, Text), ("volumeStatus", 5, Of(&VOLUME_STATUS))]);
static CONTAINER_USER: Message = Message(&[("linux", 1, Of(&LINUX_CONTAINER_USER))]);
static RESOURCE_STATUS: Message = Message(&[("name", 1, Text), ("resources", 2, Of(&RESOURCE_HEALTH))]);
static CONTAINER_EXTENDED_RESOURCE_REQUEST: Message = Message(&[("containerName", 1, Text),
    ("resourceName", 2, Text), ("requestName", 3, Text)]);
static HOST_PATH_VOLUME_SOURCE: Message = Message(&[("path", 1, Text), ("type", 2, Text)]);
static EMPTY_DIR_VOLUME_SOURCE: Message = Message(&[("medium", 1, Text), ("sizeLimit", 2, Quantity)]);
static GCE_PERSISTENT_DISK_VOLUME_SOURCE: Message = Message(&[("pdName", 1, Text), ("fsType", 2, Text),
    ("partition", 3, Int), ("readOnly", 4, Bool)]);
static AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE: Message = Message(&[("volumeID", 1, Text),
    ("fsType", 2, Text), ("partition", 3, Int), ("readOnly", 4, Bool)]);
static GIT_REPO_VOLUME_SOURCE: Message = Message(&[("repository", 1, Text), ("revision", 2, Text),
    ("directory", 3, Text)]);
static SECRET_VOLUME_SOURCE: Message = Message(&[("secretName", 1, Text), ("items", 2, Of(&KEY_TO_PATH)),
    ("defaultMode", 3, Int), ("optional", 4, Bool)]);
static NFS_VOLUME_SOURCE: Message = Message(&[("server", 1, Text), ("path", 2, Text),
    ("readOnly", 3, Bool)]);
static ISCSI_VOLUME_SOURCE: Message = Message(&[("targetPortal", 1, Text), ("iqn", 2, Text),
    ("lun", 3, Int), ("iscsiInterface", 4, Text), ("fsType", 5, Text), ("readOnly", 6, Bool),
    ("portals", 7, Text), ("chapAuthDiscovery", 8, Bool), ("secretRef", 10, Of(&LOCAL_OBJECT_REFERENCE)),
    ("chapAuthSession", 11, Bool), ("initiatorName", 12, Text)]);
static GLUSTERFS_VOLUME_SOURCE: Message = Message(&[("endpoints", 1, Text), ("path", 2, Text),
    ("readOnly", 3, Bool)]);
static PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE: Message = Message(&[("claimName", 1, Text),
    ("readOnly", 2, Bool)]);
static RBD_VOLUME_SOURCE: Message = Message(&[("monitors", 1, Text), ("image", 2, Text),
    ("fsType", 3, Text), ("pool", 4, Text), ("user", 5, Text), ("keyring", 6, Text),
    ("secretRef", 7, Of(&LOCAL_OBJECT_REFERENCE)), ("readOnly", 8, Bool)]);
static FLEX_VOLUME_SOURCE: Message = Message(&[("driver", 1, Text), ("fsType", 2, Text),
    ("secretRef", 3, Of(&LOCAL_OBJECT_REFERENCE)), ("readOnly", 4, Bool), ("options", 5, TextMap)]);
static CINDER_VOLUME_SOURCE: Message = Message(&[("volumeID", 1, Text), ("fsType", 2, Text),
    ("readOnly", 3, Bool), ("secretRef", 4, Of(&LOCAL_OBJECT_REFERENCE))]);
static CEPH_FS_VOLUME_SOURCE: Message = Message(&[("monitors", 1, Text), ("path", 2, Text),
    ("user", 3, Text), ("secretFile", 4, Text), ("secretRef", 5, Of(&LOCAL_OBJECT_REFERENCE)),
    ("readOnly", 6, Bool)]);
static FLOCKER_VOLUME_SOURCE: Message = Message(&[("datasetName", 1, Text), ("datasetUUID", 2, Text)]);
static DOWNWARD_API_VOLUME_SOURCE: Message = Message(&[("items", 1, Of(&DOWNWARD_API_VOLUME_FILE)),
    ("defaultMode", 2, Int)]);
static FC_VOLUME_SOURCE: Message = Message(&[("targetWWNs", 1, Text), ("lun", 2, Int), ("fsType", 3, Text),
    ("readOnly", 4, Bool), ("wwids", 5, Text)]);
static AZURE_FILE_VOLUME_SOURCE: Message = Message(&[("secretName", 1, Text), ("shareName", 2, Text),
    ("readOnly", 3, Bool)]);
static CONFIG_MAP_VOLUME_SOURCE: Message = Message(&[
    ("localObjectReference", 1, Inlined(&LOCAL_OBJECT_REFERENCE)), ("items", 2, Of(&KEY_TO_PATH)),
    ("defaultMode", 3, Int), ("optional", 4, Bool)]);
static VSPHERE_VIRTUAL_DISK_VOLUME_SOURCE: Message = Message(&[("volumePath", 1, Text),
    ("fsType", 2, Text), ("storagePolicyName", 3, Text), ("storagePolicyID", 4, Text)]);
static QUOBYTE_VOLUME_SOURCE: Message = Message(&[("registry", 1, Text), ("volume", 2, Text),
    ("readOnly", 3, Bool), ("user", 4, Text), ("group", 5, Text), ("tenant", 6, Text)]);
static AZURE_DISK_VOLUME_SOURCE: Message = Message(&[("diskName", 1, Text), ("diskURI", 2, Text),
    ("cachingMode", 3, Text), ("fsType", 4, Text), ("readOnly", 5, Bool), ("kind", 6, Text)]);
static PHOTON_PERSISTENT_DISK_VOLUME_SOURCE: Message = Message(&[("pdID", 1, Text), ("fsType", 2, Text)]);
static PROJECTED_VOLUME_SOURCE: Message = Message(&[("sources", 1, Of(&VOLUME_PROJECTION)),
    ("defaultMode", 2, Int)]);
static PORTWORX_VOLUME_SOURCE: Message = Message(&[("volumeID", 1, Text), ("fsType", 2, Text),
    ("readOnly", 3, Bool)]);
static SCALE_IO_VOLUME_SOURCE: Message = Message(&[("gateway", 1, Text), ("system", 2, Text),
    ("secretRef", 3, Of(&LOCAL_OBJECT_REFERENCE)), ("sslEnabled", 4, Bool), ("protectionDomain", 5, Text),
    ("storagePool", 6, Text), ("storageMode", 7, Text), ("volumeName", 8, Text), ("fsType", 9, Text),
    ("readOnly", 10, Bool)]);
static STORAGE_OS_VOLUME_SOURCE: Message = Message(&[("volumeName", 1, Text), ("volumeNamespace", 2, Text),
    ("fsType", 3, Text), ("readOnly", 4, Bool), ("secretRef", 5, Of(&LOCAL_OBJECT_REFERENCE))]);
static CSI_VOLUME_SOURCE: Message = Message(&[("driver", 1, Text), ("readOnly", 2, Bool),
    ("fsType", 3, Text), ("volumeAttributes", 4, TextMap),
    ("nodePublishSecretRef", 5, Of(&LOCAL_OBJECT_REFERENCE))]);
static EPHEMERAL_VOLUME_SOURCE: Message = Message(&[
    ("volumeClaimTemplate", 1, Of(&PERSISTENT_VOLUME_CLAIM_TEMPLATE))]);
static IMAGE_VOLUME_SOURCE: Message = Message(&[("reference", 1, Text), ("pullPolicy", 2, Text)]);
static CONFIG_MAP_ENV_SOURCE: Message = Message(&[
    ("localObjectReference", 1, Inlined(&LOCAL_OBJECT_REFERENCE)), ("optional", 2, Bool)]);
static SECRET_ENV_SOURCE: Message = Message(&[
    ("localObjectReference", 1, Inlined(&LOCAL_OBJECT_REFERENCE)), ("optional", 2, Bool)]);
static ENV_VAR_SOURCE: Message = Message(&[("fieldRef", 1, Of(&OBJECT_FIELD_SELECTOR)),
    ("resourceFieldRef", 2, Of(&RESOURCE_FIELD_SELECTOR)),
    ("configMapKeyRef", 3, Of(&CONFIG_MAP_KEY_SELECTOR)), ("secretKeyRef", 4, Of(&SECRET_KEY_SELECTOR)),
    ("fileKeyRef", 5, Of(&FILE_KEY_SELECTOR))]);
static CONTAINER_RESTART_RULE_ON_EXIT_CODES: Message = Message(&[("operator", 1, Text),
    ("values", 2, Int)]);
static PROBE_HANDLER: Message = Message(&[("exec", 1, Of(&EXEC_ACTION)),
    ("httpGet", 2, Of(&HTTP_GET_ACTION)), ("tcpSocket", 3, Of(&TCP_SOCKET_ACTION)),
    ("grpc", 4, Of(&GRPC_ACTION))]);
static LIFECYCLE_HANDLER: Message = Message(&[("exec", 1, Of(&EXEC_ACTION)),
    ("httpGet", 2, Of(&HTTP_GET_ACTION)), ("tcpSocket", 3, Of(&TCP_SOCKET_ACTION)),
    ("sleep", 4, Of(&SLEEP_ACTION))]);
static CAPABILITIES: Message = Message(&[("add", 1, Text), ("drop", 2, Text)]);
static NODE_SELECTOR: Message = Message(&[("nodeSelectorTerms", 1, Of(&NODE_SELECTOR_TERM))]);
static PREFERRED_SCHEDULING_TERM: Message = Message(&[("weight", 1, Int),
    ("preference", 2, Of(&NODE_SELECTOR_TERM))]);
static POD_AFFINITY_TERM: Message = Message(&[("labelSelector", 1, Of(&LABEL_SELECTOR)),
    ("namespaces", 2, Text), ("topologyKey", 3, Text), ("namespaceSelector", 4, Of(&LABEL_SELECTOR)),
    ("matchLabelKeys", 5, Text), ("mismatchLabelKeys", 6, Text)]);
static WEIGHTED_POD_AFFINITY_TERM: Message = Message(&[("weight", 1, Int),
    ("podAffinityTerm", 2, Of(&POD_AFFINITY_TERM))]);
static LABEL_SELECTOR_REQUIREMENT: Message = Message(&[("key", 1, Text), ("operator", 2, Text),
    ("values", 3, Text)]);
static CONTAINER_STATE_WAITING: Message = Message(&[("reason", 1, Text), ("message", 2, Text)]);
static CONTAINER_STATE_RUNNING: Message = Message(&[("startedAt", 1, Time)]);
static CONTAINER_STATE_TERMINATED: Message = Message(&[("exitCode", 1, Int), ("signal", 2, Int),
    ("reason", 3, Text), ("message", 4, Text), ("startedAt", 5, Time), ("finishedAt", 6, Time),
    ("containerID", 7, Text)]);
static VOLUME_STATUS: Message = Message(&[("image", 1, Of(&IMAGE_VOLUME_STATUS))]);
static LINUX_CONTAINER_USER: Message = Message(&[("uid", 1, Int), ("gid", 2, Int),
    ("supplementalGroups", 3, Int)]);
static RESOURCE_HEALTH: Message = Message(&[("resourceID", 1, Text), ("health", 2, Text),
    ("message", 6, Text)]);
static KEY_TO_PATH: Message = Message(&[("key", 1, Text), ("path", 2, Text), ("mode", 3, Int)]);
static DOWNWARD_API_VOLUME_FILE: Message = Message(&[("path", 1, Text),
    ("fieldRef", 2, Of(&OBJECT_FIELD_SELECTOR)), ("resourceFieldRef", 3, Of(&RESOURCE_FIELD_SELECTOR)),
    ("mode", 4, Int)]);
static VOLUME_PROJECTION: Message = Message(&[("secret", 1, Of(&SECRET_PROJECTION)),
    ("downwardAPI", 2, Of(&DOWNWARD_API_PROJECTION)), ("configMap", 3, Of(&CONFIG_MAP_PROJECTION)),
    ("serviceAccountToken", 4, Of(&SERVICE_ACCOUNT_TOKEN_PROJECTION)),
    ("clusterTrustBundle", 5, Of(&CLUSTER_TRUST_BUNDLE_PROJECTION)),
    ("podCertificate", 6, Of(&POD_CERTIFICATE_PROJECTION))]);
static PERSISTENT_VOLUME_CLAIM_TEMPLATE: Message = Message(&[("metadata", 1, Of(&OBJECT_META)),
    ("spec", 2, Of(&PERSISTENT_VOLUME_CLAIM_SPEC))]);
static OBJECT_FIELD_SELECTOR: Message = Message(&[("apiVersion", 1, Text), ("fieldPath", 2, Text)]);
static RESOURCE_FIELD_SELECTOR: Message = Message(&[("containerName", 1, Text), ("resource", 2, Text),
    ("divisor", 3, Quantity)]);
static CONFIG_MAP_KEY_SELECTOR: Message = Message(&[
    ("localObjectReference", 1, Inlined(&LOCAL_OBJECT_REFERENCE)), ("key", 2, Text),
    ("optional", 3, Bool)]);
static SECRET_KEY_SELECTOR: Message = Message(&[
    ("localObjectReference", 1, Inlined(&LOCAL_OBJECT_REFERENCE)), ("key", 2, Text),
    ("optional", 3, Bool)]);
static FILE_KEY_SELECTOR: Message = Message(&[("volumeName", 1, Text), ("path", 2, Text), ("key", 3, Text),
    ("optional", 4, Bool)]);
static EXEC_ACTION: Message = Message(&[("command", 1, Text)]);
static HTTP_GET_ACTION: Message = Message(&[("path", 1, Text), ("port", 2, IntOrText), ("host", 3, Text),
    ("scheme", 4, Text), ("httpHeaders", 5, Of(&HTTP_HEADER))]);
static TCP_SOCKET_ACTION: Message = Message(&[("port", 1, IntOrText), ("host", 2, Text)]);
static GRPC_ACTION: Message = Message(&[("port", 1, Int), ("service", 2, Text)]);
static SLEEP_ACTION: Message = Message(&[("seconds", 1, Int)]);
static NODE_SELECTOR_TERM: Message = Message(&[("matchExpressions", 1, Of(&NODE_SELECTOR_REQUIREMENT)),
    ("matchFields", 2, Of(&NODE_SELECTOR_REQUIREMENT))]);
static IMAGE_VOLUME_STATUS: Message = Message(&[("imageRef", 1, Text)]);
static SECRET_PROJECTION: Message = Message(&[
    ("localObjectReference", 1, Inlined(&LOCAL_OBJECT_REFERENCE)), ("items", 2, Of(&KEY_TO_PATH)),
    ("optional", 4, Bool)]);
static DOWNWARD_API_PROJECTION: Message = Message(&[("items", 1, Of(&DOWNWARD_API_VOLUME_FILE))]);
static CONFIG_MAP_PROJECTION: Message = Message(&[
    ("localObjectReference", 1, Inlined(&LOCAL_OBJECT_REFERENCE)), ("items", 2, Of(&KEY_TO_PATH)),
    ("optional", 4, Bool)]);
static SERVICE_ACCOUNT_TOKEN_PROJECTION: Message = Message(&[("audience", 1, Text),
    ("expirationSeconds", 2, Int), ("path", 3, Text)]);
static CLUSTER_TRUST_BUNDLE_PROJECTION: Message = Message(&[("name", 1, Text), ("signerName", 2, Text),
    ("labelSelector", 3, Of(&LABEL_SELECTOR)), ("path", 4, Text), ("optional", 5, Bool)]);
static POD_CERTIFICATE_PROJECTION: Message = Message(&[("signerName", 1, Text), ("keyType", 2, Text),
    ("maxExpirationSeconds", 3, Int), ("credentialBundlePath", 4, Text), ("keyPath", 5, Text),
    ("certificateChainPath", 6, Text), ("userAnnotations", 7, TextMap)]);
static PERSISTENT_VOLUME_CLAIM_SPEC: Message = Message(&[("accessModes", 1, Text),
    ("resources", 2, Of(&VOLUME_RESOURCE_REQUIREMENTS)), ("volumeName", 3, Text),
    ("selector", 4, Of(&LABEL_SELECTOR)), ("storageClassName", 5, Text), ("volumeMode", 6, Text),
    ("dataSource", 7, Of(&TYPED_LOCAL_OBJECT_REFERENCE)),
    ("dataSourceRef", 8, Of(&TYPED_OBJECT_REFERENCE)), ("volumeAttributesClassName", 9, Text)]);
static HTTP_HEADER: Message = Message(&[("name", 1, Text), ("value", 2, Text)]);
static NODE_SELECTOR_REQUIREMENT: Message = Message(&[("key", 1, Text), ("operator", 2, Text),
    ("values", 3, Text)]);
static VOLUME_RESOURCE_REQUIREMENTS: Message = Message(&[("limits", 1, QuantityMap),
    ("requests", 2, QuantityMap)]);
static TYPED_LOCAL_OBJECT_REFERENCE: Message = Message(&[("apiGroup", 1, Text), ("kind", 2, Text),
    ("name", 3, Text)]);
static TYPED_OBJECT_REFERENCE: Message = Message(&[("apiGroup", 1, Text), ("kind", 2, Text),
    ("name", 3, Text), ("namespace", 4, Text)]);
