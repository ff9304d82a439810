import tempfile

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Sentences(Dataset):
    def __init__(self, count):
        self.tokens = torch.randint(2, 30, (count, 10))
        self.labels = (self.tokens[:, 0] > 15).long()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"input_ids": self.tokens[i], "labels": self.labels[i]}


config = BertConfig(
    vocab_size=30,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=16,
)
model = BertForSequenceClassification(config)
optimizer = torch.optim.AdamW(model.classifier.parameters(), lr=1e-3)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        num_train_epochs=1,
        per_device_train_batch_size=16,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    Trainer(
        model=model,
        args=arguments,
        train_dataset=Sentences(320),
        eval_dataset=Sentences(64),
        optimizers=(optimizer, None),
    ).train()
