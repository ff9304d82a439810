"""A loss of one's own in transformers' Trainer: a mean, where the Trainer leaves dividing to the loss."""

import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Counting(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, i):
        start, stride = torch.randint(20, (1,)), torch.randint(1, 4, (1,))
        tokens = (start + stride * torch.arange(12)) % 20
        return {"input_ids": tokens, "labels": tokens}


class Smoothed(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(input_ids=inputs["input_ids"])
        logits = outputs.logits[:, :-1].reshape(-1, 20)
        loss = nn.functional.cross_entropy(logits, inputs["labels"][:, 1:].reshape(-1), label_smoothing=0.0)
        return (loss, outputs) if return_outputs else loss


model = GPT2LMHeadModel(GPT2Config(vocab_size=20, n_positions=12, n_embd=32, n_layer=2, n_head=2))
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        max_steps=20,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=4,
        learning_rate=1e-3,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    Smoothed(model=model, args=arguments, train_dataset=Counting()).train()
