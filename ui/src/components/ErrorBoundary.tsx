import { Component, type ReactNode } from 'react';
import { Button } from './Button';

interface Props {
  // place is the address that is shown. After a change of the address, the component is drawn again.
  place: string;
  children: ReactNode;
}

interface State {
  error: Error | null;
}

// ErrorBoundary shows the error of a component that failed, and ways to continue. Without it, the page would be empty.
export class ErrorBoundary extends Component<Props, State> {
  override state: State = { error: null };

  static getDerivedStateFromError(error: unknown): State {
    return { error: error instanceof Error ? error : new Error(String(error)) };
  }

  override componentDidUpdate(before: Props): void {
    if (before.place !== this.props.place && this.state.error !== null) this.setState({ error: null });
  }

  override render(): ReactNode {
    const { error } = this.state;
    if (error === null) return this.props.children;
    return (
      <div className="problem" role="alert">
        <h1>This part of the page failed</h1>
        <p>
          {error.name}: {error.message}
        </p>
        <p>Changes that were already sent continue. If the daemon was upgraded after you opened this page, reload the page.</p>
        <div className="actions">
          <Button onPress={() => this.setState({ error: null })}>Try again</Button>
          <Button look="primary" onPress={() => location.reload()}>
            Reload the page
          </Button>
        </div>
      </div>
    );
  }
}
