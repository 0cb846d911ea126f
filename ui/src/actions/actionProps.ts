import type { Volume } from '../api/types';

// ActionProps is what the dialog of each action gets: the volumes that it changes, and how it closes.
export interface ActionProps {
  volumes: Volume[];
  onClose: () => void;
}
