//! The same library in NVML's place: a `libnvidia-ml.so.1` that is this very file, by a link or a mount, so that the loader
//! takes both for one and a process has one state. Each of NVML's names is one jump, as the driver's are.
//!
//! The names are those of NVML 13's public functions, older variants that are still asked for, and one that `nvidia-smi`
//! uses. What is not in the list is not found.

use std::arch::naked_asm;
use std::ffi::{CStr, c_uint, c_void};
use std::sync::atomic::AtomicPtr;

use super::{Target, first_call};
use crate::hooks::c_name;
use crate::nvml::FUNCTION_NOT_FOUND;

/// Numbers from here on are NVML's.
pub const FIRST: u32 = 1 << 16;

macro_rules! forwarders {
    ($($name:ident)*) => {
        /// The place of each name in the lists below.
        #[allow(non_camel_case_types, clippy::enum_variant_names, reason = "variants are named as the symbols they number")]
        #[derive(Clone, Copy)]
        enum Index { $($name),* }

        const NAMES: &[&CStr] = &[$(c_name!($name)),*];

        $(
            /// NVML's function of this name, or our hook for it.
            ///
            /// # Safety
            /// As NVML's function of this name.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            #[allow(non_snake_case, reason = "NVML's names")]
            pub unsafe extern "C" fn $name() {
                naked_asm!(
                    "mov r11, qword ptr [rip + {targets} + {offset}]",
                    "test r11, r11",
                    "jz 2f",
                    "jmp r11",
                    "2: mov r11d, {index}",
                    "jmp {first_call}",
                    targets = sym TARGETS,
                    offset = const Index::$name as usize * 8,
                    index = const FIRST as usize + Index::$name as usize,
                    first_call = sym first_call,
                )
            }
        )*
    };
}

/// Where each name goes; null before its first call.
static TARGETS: [AtomicPtr<c_void>; NAMES.len()] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; NAMES.len()];

/// The name of this number.
pub fn target(index: u32) -> Option<Target> {
    let at = index.checked_sub(FIRST)? as usize;
    Some(Target { name: NAMES.get(at)?, place: TARGETS.get(at)?, absent: absent as *const c_void })
}

/// Stands for a function that NVML lacks, or that there is no NVML for.
extern "C" fn absent() -> c_uint {
    FUNCTION_NOT_FOUND
}

forwarders! {
    nvmlComputeInstanceDestroy nvmlComputeInstanceGetInfo_v2 nvmlDeviceClearAccountingPids
    nvmlDeviceClearCpuAffinity nvmlDeviceClearEccErrorCounts nvmlDeviceClearFieldValues
    nvmlDeviceCreateGpuInstance nvmlDeviceCreateGpuInstanceWithPlacement nvmlDeviceDiscoverGpus
    nvmlDeviceFreezeNvLinkUtilizationCounter nvmlDeviceGetAPIRestriction nvmlDeviceGetAccountingBufferSize
    nvmlDeviceGetAccountingMode nvmlDeviceGetAccountingPids nvmlDeviceGetAccountingStats
    nvmlDeviceGetAccountingStats_v2 nvmlDeviceGetActiveVgpus nvmlDeviceGetAdaptiveClockInfoStatus
    nvmlDeviceGetAdaptiveTgpModeInfo_v1 nvmlDeviceGetAddressingMode nvmlDeviceGetApplicationsClock
    nvmlDeviceGetArchitecture nvmlDeviceGetAttributes_v2 nvmlDeviceGetAutoBoostedClocksEnabled
    nvmlDeviceGetBAR1MemoryInfo nvmlDeviceGetBBXTimeData_v1 nvmlDeviceGetBankRemapperStatus_v1
    nvmlDeviceGetBoardId nvmlDeviceGetBoardPartNumber nvmlDeviceGetBrand nvmlDeviceGetBridgeChipInfo
    nvmlDeviceGetBusType nvmlDeviceGetC2cModeInfoV nvmlDeviceGetCapabilities nvmlDeviceGetClkMonStatus
    nvmlDeviceGetClock nvmlDeviceGetClockInfo nvmlDeviceGetClockOffsets nvmlDeviceGetComputeInstanceId
    nvmlDeviceGetComputeMode nvmlDeviceGetComputeRunningProcesses nvmlDeviceGetComputeRunningProcesses_v2
    nvmlDeviceGetComputeRunningProcesses_v3 nvmlDeviceGetConfComputeGpuAttestationReport
    nvmlDeviceGetConfComputeGpuCertificate nvmlDeviceGetConfComputeMemSizeInfo
    nvmlDeviceGetConfComputeProtectedMemoryUsage nvmlDeviceGetCoolerInfo nvmlDeviceGetCount
    nvmlDeviceGetCount_v2 nvmlDeviceGetCpuAffinity nvmlDeviceGetCpuAffinityWithinScope
    nvmlDeviceGetCreatableVgpus nvmlDeviceGetCudaComputeCapability nvmlDeviceGetCurrPcieLinkGeneration
    nvmlDeviceGetCurrPcieLinkWidth nvmlDeviceGetCurrentClockFreqs nvmlDeviceGetCurrentClocksEventReasons
    nvmlDeviceGetCurrentClocksThrottleReasons nvmlDeviceGetDecoderUtilization
    nvmlDeviceGetDefaultApplicationsClock nvmlDeviceGetDefaultEccMode nvmlDeviceGetDetailedEccErrors
    nvmlDeviceGetDeviceHandleFromMigDeviceHandle nvmlDeviceGetDisplayActive nvmlDeviceGetDisplayMode
    nvmlDeviceGetDramEncryptionMode nvmlDeviceGetDriverModel nvmlDeviceGetDriverModel_v2
    nvmlDeviceGetDynamicPstatesInfo nvmlDeviceGetEccMode nvmlDeviceGetEncoderCapacity
    nvmlDeviceGetEncoderSessions nvmlDeviceGetEncoderStats nvmlDeviceGetEncoderUtilization
    nvmlDeviceGetEnforcedPowerLimit nvmlDeviceGetFBCSessions nvmlDeviceGetFBCStats
    nvmlDeviceGetFanControlPolicy_v2 nvmlDeviceGetFanSpeed nvmlDeviceGetFanSpeedRPM
    nvmlDeviceGetFanSpeed_v2 nvmlDeviceGetFieldValues nvmlDeviceGetGpcClkMinMaxVfOffset
    nvmlDeviceGetGpcClkVfOffset nvmlDeviceGetGpuFabricInfo nvmlDeviceGetGpuFabricInfoV
    nvmlDeviceGetGpuFabricInfo_v4 nvmlDeviceGetGpuInstanceById nvmlDeviceGetGpuInstanceId
    nvmlDeviceGetGpuInstancePossiblePlacements_v2 nvmlDeviceGetGpuInstanceProfileInfo
    nvmlDeviceGetGpuInstanceProfileInfoByIdV nvmlDeviceGetGpuInstanceProfileInfoV
    nvmlDeviceGetGpuInstanceRemainingCapacity nvmlDeviceGetGpuInstances
    nvmlDeviceGetGpuMaxPcieLinkGeneration nvmlDeviceGetGpuOperationMode
    nvmlDeviceGetGraphicsRunningProcesses nvmlDeviceGetGraphicsRunningProcesses_v2
    nvmlDeviceGetGraphicsRunningProcesses_v3 nvmlDeviceGetGridLicensableFeatures_v4
    nvmlDeviceGetGspFirmwareMode nvmlDeviceGetGspFirmwareVersion nvmlDeviceGetHandleByIndex
    nvmlDeviceGetHandleByIndex_v2 nvmlDeviceGetHandleByPciBusId nvmlDeviceGetHandleByPciBusId_v2
    nvmlDeviceGetHandleBySerial nvmlDeviceGetHandleByUUID nvmlDeviceGetHandleByUUIDV
    nvmlDeviceGetHostVgpuMode nvmlDeviceGetHostname_v1 nvmlDeviceGetIndex
    nvmlDeviceGetInforomConfigurationChecksum nvmlDeviceGetInforomImageVersion nvmlDeviceGetInforomVersion
    nvmlDeviceGetIrqNum nvmlDeviceGetJpgUtilization nvmlDeviceGetLastBBXFlushTime
    nvmlDeviceGetMPSComputeRunningProcesses nvmlDeviceGetMPSComputeRunningProcesses_v2
    nvmlDeviceGetMPSComputeRunningProcesses_v3 nvmlDeviceGetMarginTemperature nvmlDeviceGetMaxClockInfo
    nvmlDeviceGetMaxCustomerBoostClock nvmlDeviceGetMaxMigDeviceCount nvmlDeviceGetMaxPcieLinkGeneration
    nvmlDeviceGetMaxPcieLinkWidth nvmlDeviceGetMemClkMinMaxVfOffset nvmlDeviceGetMemClkVfOffset
    nvmlDeviceGetMemoryAffinity nvmlDeviceGetMemoryBusWidth nvmlDeviceGetMemoryErrorCounter
    nvmlDeviceGetMemoryInfo nvmlDeviceGetMemoryInfo_v2 nvmlDeviceGetMemoryLimits_v1
    nvmlDeviceGetMigDeviceHandleByIndex nvmlDeviceGetMigMode nvmlDeviceGetMinMaxClockOfPState
    nvmlDeviceGetMinMaxFanSpeed nvmlDeviceGetMinorNumber nvmlDeviceGetModuleId nvmlDeviceGetMultiGpuBoard
    nvmlDeviceGetName nvmlDeviceGetNumFans nvmlDeviceGetNumGpuCores nvmlDeviceGetNumaNodeId
    nvmlDeviceGetNvLinkCapability nvmlDeviceGetNvLinkErrorCounter nvmlDeviceGetNvLinkInfo
    nvmlDeviceGetNvLinkRemoteDeviceType nvmlDeviceGetNvLinkRemotePciInfo_v2 nvmlDeviceGetNvLinkState
    nvmlDeviceGetNvLinkTelemetrySamples_v1 nvmlDeviceGetNvLinkUtilizationControl
    nvmlDeviceGetNvLinkUtilizationCounter nvmlDeviceGetNvLinkVersion nvmlDeviceGetNvlinkBwMode
    nvmlDeviceGetNvlinkSupportedBwModes nvmlDeviceGetOfaUtilization nvmlDeviceGetP2PStatus
    nvmlDeviceGetPciInfo nvmlDeviceGetPciInfoExt nvmlDeviceGetPciInfo_v2 nvmlDeviceGetPciInfo_v3
    nvmlDeviceGetPcieLinkMaxSpeed nvmlDeviceGetPcieReplayCounter nvmlDeviceGetPcieSpeed
    nvmlDeviceGetPcieThroughput nvmlDeviceGetPdi nvmlDeviceGetPerformanceModes
    nvmlDeviceGetPerformanceState nvmlDeviceGetPersistenceMode nvmlDeviceGetPgpuMetadataString
    nvmlDeviceGetPlatformInfo nvmlDeviceGetPowerManagementDefaultLimit nvmlDeviceGetPowerManagementLimit
    nvmlDeviceGetPowerManagementLimitConstraints nvmlDeviceGetPowerManagementMode
    nvmlDeviceGetPowerMizerMode_v1 nvmlDeviceGetPowerSource nvmlDeviceGetPowerState nvmlDeviceGetPowerUsage
    nvmlDeviceGetProcessUtilization nvmlDeviceGetProcessesUtilizationInfo nvmlDeviceGetRemappedRows
    nvmlDeviceGetRemappedRows_v2 nvmlDeviceGetRepairStatus nvmlDeviceGetRetiredPages
    nvmlDeviceGetRetiredPagesPendingStatus nvmlDeviceGetRetiredPages_v2 nvmlDeviceGetRowRemapperHistogram
    nvmlDeviceGetRunningProcessDetailList nvmlDeviceGetSamples nvmlDeviceGetSerial
    nvmlDeviceGetSramEccErrorStatus nvmlDeviceGetSramUniqueUncorrectedEccErrorCounts
    nvmlDeviceGetSupportedClocksEventReasons nvmlDeviceGetSupportedClocksThrottleReasons
    nvmlDeviceGetSupportedEventTypes nvmlDeviceGetSupportedGraphicsClocks
    nvmlDeviceGetSupportedMemoryClocks nvmlDeviceGetSupportedPerformanceStates nvmlDeviceGetSupportedVgpus
    nvmlDeviceGetTargetFanSpeed nvmlDeviceGetTemperature nvmlDeviceGetTemperatureThreshold
    nvmlDeviceGetTemperatureV nvmlDeviceGetThermalSettings nvmlDeviceGetTopologyCommonAncestor
    nvmlDeviceGetTopologyNearestGpus nvmlDeviceGetTotalEccErrors nvmlDeviceGetTotalEnergyConsumption
    nvmlDeviceGetUUID nvmlDeviceGetUnrepairableMemoryFlag_v1 nvmlDeviceGetUtilizationRates
    nvmlDeviceGetVbiosVersion nvmlDeviceGetVgpuCapabilities nvmlDeviceGetVgpuHeterogeneousMode
    nvmlDeviceGetVgpuInstancesUtilizationInfo nvmlDeviceGetVgpuMetadata nvmlDeviceGetVgpuProcessUtilization
    nvmlDeviceGetVgpuProcessesUtilizationInfo nvmlDeviceGetVgpuSchedulerCapabilities
    nvmlDeviceGetVgpuSchedulerLog nvmlDeviceGetVgpuSchedulerLog_v2 nvmlDeviceGetVgpuSchedulerState
    nvmlDeviceGetVgpuSchedulerState_v2 nvmlDeviceGetVgpuTypeCreatablePlacements
    nvmlDeviceGetVgpuTypeSupportedPlacements nvmlDeviceGetVgpuUtilization nvmlDeviceGetViolationStatus
    nvmlDeviceGetVirtualizationMode nvmlDeviceIsMigDeviceHandle nvmlDeviceModifyDrainState
    nvmlDeviceOnSameBoard nvmlDevicePerfMetricsGetSamples_v1 nvmlDevicePowerSmoothingActivatePresetProfile
    nvmlDevicePowerSmoothingSetState nvmlDevicePowerSmoothingUpdatePresetProfileParam
    nvmlDeviceQueryDrainState nvmlDeviceReadPRMCounters_v1 nvmlDeviceReadWritePRM_v1
    nvmlDeviceRegisterEvents nvmlDeviceRemoveGpu nvmlDeviceResetApplicationsClocks
    nvmlDeviceResetGpuLockedClocks nvmlDeviceResetMemoryLockedClocks nvmlDeviceResetNvLinkErrorCounters
    nvmlDeviceResetNvLinkUtilizationCounter nvmlDeviceSetAPIRestriction nvmlDeviceSetAccountingMode
    nvmlDeviceSetAdaptiveTgpMode_v1 nvmlDeviceSetApplicationsClocks nvmlDeviceSetAutoBoostedClocksEnabled
    nvmlDeviceSetClockOffsets nvmlDeviceSetComputeMode nvmlDeviceSetConfComputeUnprotectedMemSize
    nvmlDeviceSetCpuAffinity nvmlDeviceSetDefaultAutoBoostedClocksEnabled nvmlDeviceSetDefaultFanSpeed_v2
    nvmlDeviceSetDramEncryptionMode nvmlDeviceSetDriverModel nvmlDeviceSetEccMode
    nvmlDeviceSetFanControlPolicy nvmlDeviceSetFanSpeed_v2 nvmlDeviceSetGpcClkVfOffset
    nvmlDeviceSetGpuLockedClocks nvmlDeviceSetGpuOperationMode nvmlDeviceSetHostname_v1
    nvmlDeviceSetMemClkVfOffset nvmlDeviceSetMemoryLimits_v1 nvmlDeviceSetMemoryLockedClocks
    nvmlDeviceSetMigMode nvmlDeviceSetNvLinkDeviceLowPowerThreshold nvmlDeviceSetNvLinkUtilizationControl
    nvmlDeviceSetNvlinkBwMode nvmlDeviceSetNvlinkBwModeAsync_v1 nvmlDeviceSetPersistenceMode
    nvmlDeviceSetPowerManagementLimit nvmlDeviceSetPowerManagementLimit_v2 nvmlDeviceSetPowerMizerMode_v1
    nvmlDeviceSetRusdSettings_v1 nvmlDeviceSetTemperatureThreshold nvmlDeviceSetVgpuCapabilities
    nvmlDeviceSetVgpuHeterogeneousMode nvmlDeviceSetVgpuSchedulerState nvmlDeviceSetVgpuSchedulerState_v2
    nvmlDeviceSetVirtualizationMode nvmlDeviceValidateInforom nvmlDeviceVgpuForceGspUnload
    nvmlDeviceWorkloadPowerProfileClearRequestedProfiles nvmlDeviceWorkloadPowerProfileGetCurrentProfiles
    nvmlDeviceWorkloadPowerProfileGetProfilesInfo nvmlDeviceWorkloadPowerProfileSetRequestedProfiles
    nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1 nvmlErrorString nvmlEventSetCreate nvmlEventSetFree
    nvmlEventSetGetContextCount_v1 nvmlEventSetGetContextData_v1 nvmlEventSetGetContextInfo_v1
    nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1 nvmlEventSetRegisterGpuOperationalEvents_v1
    nvmlEventSetWait_v2 nvmlEventSetWait_v3 nvmlGetExcludedDeviceCount nvmlGetExcludedDeviceInfoByIndex
    nvmlGetVgpuCompatibility nvmlGetVgpuDriverCapabilities nvmlGetVgpuVersion nvmlGpmMetricsGet
    nvmlGpmMigSampleGet nvmlGpmQueryDeviceSupport nvmlGpmQueryIfStreamingEnabled nvmlGpmSampleAlloc
    nvmlGpmSampleFree nvmlGpmSampleGet nvmlGpmSetStreamingEnabled nvmlGpuInstanceCreateComputeInstance
    nvmlGpuInstanceCreateComputeInstanceWithPlacement nvmlGpuInstanceDestroy nvmlGpuInstanceGetActiveVgpus
    nvmlGpuInstanceGetComputeInstanceById nvmlGpuInstanceGetComputeInstancePossiblePlacements
    nvmlGpuInstanceGetComputeInstanceProfileInfo nvmlGpuInstanceGetComputeInstanceProfileInfoV
    nvmlGpuInstanceGetComputeInstanceRemainingCapacity nvmlGpuInstanceGetComputeInstances
    nvmlGpuInstanceGetCreatableVgpus nvmlGpuInstanceGetInfo nvmlGpuInstanceGetVgpuHeterogeneousMode
    nvmlGpuInstanceGetVgpuSchedulerLog nvmlGpuInstanceGetVgpuSchedulerLog_v2
    nvmlGpuInstanceGetVgpuSchedulerState nvmlGpuInstanceGetVgpuSchedulerState_v2
    nvmlGpuInstanceGetVgpuTypeCreatablePlacements nvmlGpuInstanceSetVgpuHeterogeneousMode
    nvmlGpuInstanceSetVgpuSchedulerState nvmlGpuInstanceSetVgpuSchedulerState_v2 nvmlInit nvmlInitWithFlags
    nvmlInit_v2 nvmlInternalGetExportTable nvmlSetVgpuVersion nvmlShutdown nvmlSystemEventSetCreate
    nvmlSystemEventSetFree nvmlSystemEventSetWait nvmlSystemGetCPER_v1 nvmlSystemGetConfComputeCapabilities
    nvmlSystemGetConfComputeGpusReadyState nvmlSystemGetConfComputeKeyRotationThresholdInfo
    nvmlSystemGetConfComputeSettings nvmlSystemGetConfComputeState nvmlSystemGetCudaDriverVersion
    nvmlSystemGetCudaDriverVersion_v2 nvmlSystemGetDriverBranch nvmlSystemGetDriverVersion
    nvmlSystemGetHicVersion nvmlSystemGetNVMLVersion nvmlSystemGetNvlinkBwMode nvmlSystemGetProcessName
    nvmlSystemGetTopologyGpuSet nvmlSystemRegisterEvents nvmlSystemSetConfComputeGpusReadyState
    nvmlSystemSetConfComputeKeyRotationThresholdInfo nvmlSystemSetNvlinkBwMode nvmlUnitGetCount
    nvmlUnitGetDevices nvmlUnitGetFanSpeedInfo nvmlUnitGetHandleByIndex nvmlUnitGetLedState
    nvmlUnitGetPsuInfo nvmlUnitGetTemperature nvmlUnitGetUnitInfo nvmlUnitSetLedState
    nvmlVgpuInstanceClearAccountingPids nvmlVgpuInstanceGetAccountingMode nvmlVgpuInstanceGetAccountingPids
    nvmlVgpuInstanceGetAccountingStats nvmlVgpuInstanceGetEccMode nvmlVgpuInstanceGetEncoderCapacity
    nvmlVgpuInstanceGetEncoderSessions nvmlVgpuInstanceGetEncoderStats nvmlVgpuInstanceGetFBCSessions
    nvmlVgpuInstanceGetFBCStats nvmlVgpuInstanceGetFbUsage nvmlVgpuInstanceGetFrameRateLimit
    nvmlVgpuInstanceGetGpuInstanceId nvmlVgpuInstanceGetGpuPciId nvmlVgpuInstanceGetLicenseInfo_v2
    nvmlVgpuInstanceGetLicenseStatus nvmlVgpuInstanceGetMdevUUID nvmlVgpuInstanceGetMetadata
    nvmlVgpuInstanceGetPlacementId nvmlVgpuInstanceGetRuntimeStateSize nvmlVgpuInstanceGetType
    nvmlVgpuInstanceGetUUID nvmlVgpuInstanceGetVmDriverVersion nvmlVgpuInstanceGetVmID
    nvmlVgpuInstanceSetEncoderCapacity nvmlVgpuTypeGetBAR1Info nvmlVgpuTypeGetCapabilities
    nvmlVgpuTypeGetClass nvmlVgpuTypeGetDeviceID nvmlVgpuTypeGetFbReservation nvmlVgpuTypeGetFrameRateLimit
    nvmlVgpuTypeGetFramebufferSize nvmlVgpuTypeGetGpuInstanceProfileId nvmlVgpuTypeGetGspHeapSize
    nvmlVgpuTypeGetLicense nvmlVgpuTypeGetMaxInstances nvmlVgpuTypeGetMaxInstancesPerGpuInstance
    nvmlVgpuTypeGetMaxInstancesPerVm nvmlVgpuTypeGetName nvmlVgpuTypeGetNumDisplayHeads
    nvmlVgpuTypeGetResolution
}
