#!/usr/bin/env bash
# One machine with several GPUs: one worker a GPU, or one model spread over several of them.
#   MODEL=Qwen/Qwen2.5-7B-Instruct TASK=gsm8k bash single-host.sh
set -euo pipefail

MODEL=${MODEL:?a hub id or a folder}
TASK=${TASK:-gsm8k}
ENGINE=${ENGINE:-transformers}            # or vllm
GPUS=${GPUS:-$(nvidia-smi --list-gpus | wc -l)}
GPUS_PER_WORKER=${GPUS_PER_WORKER:-1}     # more for a model that one GPU does not hold

# The same command goes on where it stopped, whatever stopped it.
lesion ablate "$MODEL" --task "$TASK" --items 1000 \
    --engine "$ENGINE" --workers $((GPUS / GPUS_PER_WORKER)) --gpus-per-worker "$GPUS_PER_WORKER" \
    --out "${OUT:-lesion-out/$(basename "$MODEL")-$TASK}"
