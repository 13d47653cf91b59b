"""Serialized oneDNN graphs: the JSON files of its Graph API and of benchdnn."""
